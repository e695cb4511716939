package penstock.peers;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.io.Serializable;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.legacy.table.connector.source.SourceFunctionProvider;
import org.apache.flink.streaming.api.functions.sink.legacy.RichSinkFunction;
import org.apache.flink.streaming.api.functions.sink.legacy.SinkFunction;
import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.sink.legacy.SinkFunctionProvider;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.LookupTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.connector.source.lookup.LookupFunctionProvider;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.factories.DynamicTableFactory;
import org.apache.flink.table.factories.DynamicTableSinkFactory;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.functions.FunctionContext;
import org.apache.flink.table.functions.LookupFunction;
import org.apache.flink.table.types.logical.LogicalType;

/**
 * The connector of the measuring framework: events come, and results go, as whole columns over a socket of the loopback.
 *
 * A frame is the count of its bytes and of its rows, then each column: a byte that says whether there are NULLs, a byte
 * for each row if so, and the values; text as offsets and bytes. All is little-endian. The end of the stream is the end
 * of the connection. Compiled by Janino, which Flink carries: no generics, no lambdas.
 */
public final class FlinkConnector implements DynamicTableSourceFactory, DynamicTableSinkFactory {
    public String factoryIdentifier() {
        return "penstock";
    }

    public Set requiredOptions() {
        Set options = new HashSet();
        options.add(ConfigOptions.key("port").stringType().noDefaultValue());
        options.add(ConfigOptions.key("token").stringType().noDefaultValue());
        options.add(ConfigOptions.key("number").stringType().noDefaultValue());
        return options;
    }

    public Set optionalOptions() {
        return new HashSet();
    }

    public DynamicTableSource createDynamicTableSource(DynamicTableFactory.Context context) {
        return new Scan(new Line(context));
    }

    public DynamicTableSink createDynamicTableSink(DynamicTableFactory.Context context) {
        return new Sink(new Line(context));
    }

    /** What is known of a connection: where it goes, and what its columns are, a letter for each. */
    public static final class Line implements Serializable {
        final int port;
        final String token;
        final int number;
        final String kinds;

        Line(DynamicTableFactory.Context context) {
            Map options = context.getCatalogTable().getOptions();
            port = Integer.parseInt((String) options.get("port"));
            token = (String) options.get("token");
            number = Integer.parseInt((String) options.get("number"));
            List types = context.getPhysicalRowDataType().getLogicalType().getChildren();
            StringBuilder letters = new StringBuilder();
            for (int i = 0; i < types.size(); i++) {
                letters.append(letter((LogicalType) types.get(i)));
            }
            kinds = letters.toString();
        }

        private static char letter(LogicalType type) {
            String root = type.getTypeRoot().name();
            if (root.equals("BOOLEAN")) return 'z';
            if (root.equals("TINYINT")) return 'b';
            if (root.equals("SMALLINT")) return 'h';
            if (root.equals("INTEGER")) return 'i';
            if (root.equals("DATE")) return 'a';
            if (root.equals("BIGINT")) return 'l';
            if (root.equals("FLOAT")) return 'f';
            if (root.equals("DOUBLE")) return 'd';
            if (root.equals("VARCHAR") || root.equals("CHAR")) return 's';
            if (root.startsWith("TIMESTAMP_WITHOUT") || root.startsWith("TIMESTAMP_WITH_LOCAL")) return 't';
            throw new IllegalArgumentException("a column of type " + type + " cannot pass; CAST it to DOUBLE or STRING");
        }

        Socket open() throws IOException {
            Socket socket = new Socket(InetAddress.getLoopbackAddress(), port);
            socket.setTcpNoDelay(true);
            ByteBuffer hello = ByteBuffer.allocate(token.length() + 4).order(ByteOrder.LITTLE_ENDIAN);
            hello.put(token.getBytes(StandardCharsets.US_ASCII));
            hello.putInt(number);
            socket.getOutputStream().write(hello.array());
            return socket;
        }
    }

    /**
     * Reads frames and makes rows of them, a few at a time: 65,536 rows of a hundred columns are millions of objects,
     * which the collector would move before the last of them is sent; of a thousand rows it finds nothing left.
     */
    private static final class Frames {
        private static final int FEW = 1024;

        private final DataInputStream in;
        private final String kinds;
        private final int[] nulls;
        private final int[] starts;
        private byte[] all;
        private ByteBuffer data;
        private int rows;
        private int done;

        Frames(Socket socket, String kinds) throws IOException {
            in = new DataInputStream(new BufferedInputStream(socket.getInputStream(), 1 << 16));
            this.kinds = kinds;
            nulls = new int[kinds.length()];
            starts = new int[kinds.length()];
        }

        /** The next rows; null after the last. */
        GenericRowData[] next() throws IOException {
            while (done == rows) {
                if (!read()) {
                    return null;
                }
            }
            int from = done;
            done = Math.min(rows, from + FEW);
            GenericRowData[] made = new GenericRowData[done - from];
            for (int i = 0; i < made.length; i++) {
                made[i] = new GenericRowData(kinds.length());
            }
            for (int c = 0; c < kinds.length(); c++) {
                column(made, c, from);
                if (nulls[c] >= 0) {
                    for (int i = 0; i < made.length; i++) {
                        if (all[nulls[c] + from + i] != 0) {
                            made[i].setField(c, null);
                        }
                    }
                }
            }
            return made;
        }

        /** Takes the next frame and finds its columns; false after the last. */
        private boolean read() throws IOException {
            int size;
            try {
                size = Integer.reverseBytes(in.readInt());
            } catch (EOFException over) {
                return false;
            }
            rows = Integer.reverseBytes(in.readInt());
            done = 0;
            data = null;
            all = null;
            all = new byte[size];
            in.readFully(all);
            data = ByteBuffer.wrap(all).order(ByteOrder.LITTLE_ENDIAN);
            int at = 0;
            for (int c = 0; c < kinds.length(); c++) {
                nulls[c] = all[at] != 0 ? at + 1 : -1;
                starts[c] = at + 1 + (nulls[c] >= 0 ? rows : 0);
                at = starts[c] + length(kinds.charAt(c), starts[c]);
            }
            return true;
        }

        private int length(char kind, int start) {
            if (kind == 's') return 4 * (rows + 1) + data.getInt(start + 4 * rows);
            if (kind == 'd' || kind == 'l' || kind == 't') return 8 * rows;
            if (kind == 'h') return 2 * rows;
            return kind == 'b' || kind == 'z' ? rows : 4 * rows;
        }

        private void column(GenericRowData[] made, int c, int from) {
            int start = starts[c];
            int count = made.length;
            char kind = kinds.charAt(c);
            if (kind == 'd') {
                for (int i = 0; i < count; i++) made[i].setField(c, Double.valueOf(data.getDouble(start + 8 * (from + i))));
            } else if (kind == 'i' || kind == 'a') {
                for (int i = 0; i < count; i++) made[i].setField(c, Integer.valueOf(data.getInt(start + 4 * (from + i))));
            } else if (kind == 'l') {
                for (int i = 0; i < count; i++) made[i].setField(c, Long.valueOf(data.getLong(start + 8 * (from + i))));
            } else if (kind == 't') {
                for (int i = 0; i < count; i++) {
                    long us = data.getLong(start + 8 * (from + i));
                    long ms = Math.floorDiv(us, 1000L);
                    made[i].setField(c, TimestampData.fromEpochMillis(ms, (int) (us - ms * 1000L) * 1000));
                }
            } else if (kind == 'f') {
                for (int i = 0; i < count; i++) made[i].setField(c, Float.valueOf(data.getFloat(start + 4 * (from + i))));
            } else if (kind == 'h') {
                for (int i = 0; i < count; i++) made[i].setField(c, Short.valueOf(data.getShort(start + 2 * (from + i))));
            } else if (kind == 'b') {
                for (int i = 0; i < count; i++) made[i].setField(c, Byte.valueOf(data.get(start + from + i)));
            } else if (kind == 'z') {
                for (int i = 0; i < count; i++) made[i].setField(c, Boolean.valueOf(data.get(start + from + i) != 0));
            } else {
                int text = start + 4 * (rows + 1);
                for (int i = 0; i < count; i++) {
                    int begin = data.getInt(start + 4 * (from + i));
                    int end = data.getInt(start + 4 * (from + i) + 4);
                    made[i].setField(c, StringData.fromBytes(all, text + begin, end - begin));
                }
            }
        }
    }

    private static final class Scan implements ScanTableSource, LookupTableSource {
        private final Line line;

        Scan(Line line) {
            this.line = line;
        }

        public ChangelogMode getChangelogMode() {
            return ChangelogMode.insertOnly();
        }

        public ScanTableSource.ScanRuntimeProvider getScanRuntimeProvider(ScanTableSource.ScanContext context) {
            return SourceFunctionProvider.of(new Reading(line), false);
        }

        public LookupTableSource.LookupRuntimeProvider getLookupRuntimeProvider(LookupTableSource.LookupContext context) {
            int[][] keys = context.getKeys();
            int[] columns = new int[keys.length];
            for (int i = 0; i < keys.length; i++) {
                columns[i] = keys[i][0];
            }
            return LookupFunctionProvider.of(new Lookup(line, columns));
        }

        public DynamicTableSource copy() {
            return new Scan(line);
        }

        public String asSummaryString() {
            return "events of the measuring framework";
        }
    }

    public static final class Reading implements SourceFunction {
        private final Line line;
        private volatile boolean stopped;

        Reading(Line line) {
            this.line = line;
        }

        public void run(SourceFunction.SourceContext context) throws Exception {
            Socket socket = line.open();
            try {
                Frames frames = new Frames(socket, line.kinds);
                GenericRowData[] rows = frames.next();
                while (rows != null && !stopped) {
                    synchronized (context.getCheckpointLock()) {
                        for (int i = 0; i < rows.length; i++) {
                            context.collect(rows[i]);
                        }
                    }
                    rows = frames.next();
                }
            } finally {
                socket.close();
            }
        }

        public void cancel() {
            stopped = true;
        }
    }

    /** A table in memory, the same for all that look up in this process. */
    public static final class Lookup extends LookupFunction {
        private static final Map TABLES = new HashMap();

        private final Line line;
        private final int[] keys;
        private transient Map table;

        Lookup(Line line, int[] keys) {
            this.line = line;
            this.keys = keys;
        }

        public void open(FunctionContext context) throws Exception {
            super.open(context);
            synchronized (TABLES) {
                Object name = line.token + line.number + java.util.Arrays.toString(keys);
                table = (Map) TABLES.get(name);
                if (table == null) {
                    table = read();
                    TABLES.put(name, table);
                }
            }
        }

        private Map read() throws IOException {
            Map rows = new HashMap();
            Socket socket = line.open();
            try {
                Frames frames = new Frames(socket, line.kinds);
                GenericRowData[] next = frames.next();
                while (next != null) {
                    for (int i = 0; i < next.length; i++) {
                        Object key = key(next[i], true);
                        Object there = rows.get(key);
                        if (there == null) {
                            rows.put(key, Collections.singletonList(next[i]));
                        } else {
                            List more = new ArrayList((List) there);
                            more.add(next[i]);
                            rows.put(key, more);
                        }
                    }
                    next = frames.next();
                }
            } finally {
                socket.close();
            }
            return rows;
        }

        /** A key is one value, or a list of several. */
        private Object key(RowData row, boolean whole) {
            if (keys.length == 1) {
                return value(row, whole ? keys[0] : 0, line.kinds.charAt(keys[0]));
            }
            List all = new ArrayList();
            for (int i = 0; i < keys.length; i++) {
                all.add(value(row, whole ? keys[i] : i, line.kinds.charAt(keys[i])));
            }
            return all;
        }

        public Collection lookup(RowData row) {
            Object found = table.get(key(row, false));
            return found == null ? Collections.EMPTY_LIST : (Collection) found;
        }
    }

    private static Object value(RowData row, int c, char kind) {
        if (row.isNullAt(c)) return null;
        if (kind == 'i' || kind == 'a') return Integer.valueOf(row.getInt(c));
        if (kind == 'l') return Long.valueOf(row.getLong(c));
        if (kind == 'd') return Double.valueOf(row.getDouble(c));
        if (kind == 's') return row.getString(c).toString();
        if (kind == 't') return row.getTimestamp(c, 6);
        if (kind == 'f') return Float.valueOf(row.getFloat(c));
        if (kind == 'h') return Short.valueOf(row.getShort(c));
        if (kind == 'b') return Byte.valueOf(row.getByte(c));
        return Boolean.valueOf(row.getBoolean(c));
    }

    private static final class Sink implements DynamicTableSink {
        private final Line line;

        Sink(Line line) {
            this.line = line;
        }

        public ChangelogMode getChangelogMode(ChangelogMode requested) {
            return ChangelogMode.insertOnly();
        }

        public DynamicTableSink.SinkRuntimeProvider getSinkRuntimeProvider(DynamicTableSink.Context context) {
            return SinkFunctionProvider.of(new Writing(line));
        }

        public DynamicTableSink copy() {
            return new Sink(line);
        }

        public String asSummaryString() {
            return "results for the measuring framework";
        }
    }

    /** Rows wait until there are many, or for a millisecond. */
    public static final class Writing extends RichSinkFunction implements Runnable {
        private static final int MANY = 4096;

        private final Line line;
        private transient Socket socket;
        private transient ByteBuffer[] columns;
        private transient ByteBuffer[] nulls;
        private transient ByteBuffer[] offsets;
        private transient boolean[] has;
        private transient int rows;
        private transient IOException failed;
        private transient volatile boolean closed;

        Writing(Line line) {
            this.line = line;
        }

        public void open(org.apache.flink.api.common.functions.OpenContext context) throws Exception {
            socket = line.open();
            int count = line.kinds.length();
            columns = new ByteBuffer[count];
            nulls = new ByteBuffer[count];
            offsets = new ByteBuffer[count];
            has = new boolean[count];
            for (int c = 0; c < count; c++) {
                columns[c] = fresh(8 * MANY);
                nulls[c] = fresh(MANY);
                offsets[c] = fresh(4 * (MANY + 1));
                offsets[c].putInt(0);
            }
            Thread thread = new Thread(this, "flushes results");
            thread.setDaemon(true);
            thread.start();
        }

        private static ByteBuffer fresh(int size) {
            return ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN);
        }

        public void invoke(Object value, SinkFunction.Context context) throws Exception {
            add((RowData) value);
        }

        private synchronized void add(RowData row) throws IOException {
            if (failed != null) throw failed;
            for (int c = 0; c < columns.length; c++) {
                boolean missing = row.isNullAt(c);
                nulls[c].put((byte) (missing ? 1 : 0));
                has[c] |= missing;
                put(c, line.kinds.charAt(c), row, missing);
            }
            rows++;
            if (rows == MANY) flush();
        }

        private void put(int c, char kind, RowData row, boolean missing) {
            ByteBuffer to = columns[c];
            if (kind == 'd') {
                to.putDouble(missing ? 0.0 : row.getDouble(c));
            } else if (kind == 'i' || kind == 'a') {
                to.putInt(missing ? 0 : row.getInt(c));
            } else if (kind == 'l') {
                to.putLong(missing ? 0L : row.getLong(c));
            } else if (kind == 't') {
                TimestampData time = missing ? null : row.getTimestamp(c, 6);
                to.putLong(missing ? 0L : time.getMillisecond() * 1000L + time.getNanoOfMillisecond() / 1000);
            } else if (kind == 'f') {
                to.putFloat(missing ? 0.0f : row.getFloat(c));
            } else if (kind == 'h') {
                to.putShort(missing ? (short) 0 : row.getShort(c));
            } else if (kind == 'b') {
                to.put(missing ? (byte) 0 : row.getByte(c));
            } else if (kind == 'z') {
                to.put((byte) (!missing && row.getBoolean(c) ? 1 : 0));
            } else {
                byte[] text = missing ? new byte[0] : row.getString(c).toBytes();
                if (to.remaining() < text.length) {
                    ByteBuffer larger = fresh(2 * (to.position() + text.length));
                    larger.put(to.array(), 0, to.position());
                    columns[c] = larger;
                }
                columns[c].put(text);
                offsets[c].putInt(columns[c].position());
            }
        }

        private synchronized void flush() throws IOException {
            if (rows == 0) return;
            int size = 0;
            for (int c = 0; c < columns.length; c++) {
                size += 1 + (has[c] ? rows : 0) + columns[c].position();
                size += line.kinds.charAt(c) == 's' ? offsets[c].position() : 0;
            }
            ByteBuffer frame = fresh(8 + size);
            frame.putInt(size);
            frame.putInt(rows);
            for (int c = 0; c < columns.length; c++) {
                frame.put((byte) (has[c] ? 1 : 0));
                if (has[c]) frame.put(nulls[c].array(), 0, rows);
                if (line.kinds.charAt(c) == 's') frame.put(offsets[c].array(), 0, offsets[c].position());
                frame.put(columns[c].array(), 0, columns[c].position());
                columns[c].clear();
                nulls[c].clear();
                offsets[c].clear();
                offsets[c].putInt(0);
                has[c] = false;
            }
            rows = 0;
            OutputStream out = socket.getOutputStream();
            out.write(frame.array());
        }

        public void run() {
            while (!closed) {
                try {
                    Thread.sleep(1L);
                    if (!closed) flush();
                } catch (IOException error) {
                    failed = error;
                    return;
                } catch (InterruptedException over) {
                    return;
                }
            }
        }

        public void close() throws Exception {
            closed = true;
            if (socket != null) {
                flush();
                socket.close();
            }
        }
    }
}
