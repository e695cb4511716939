package penstock.peers;

import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import java.lang.management.MemoryType;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import com.espertech.esper.common.client.EPCompiled;
import com.espertech.esper.common.client.EventBean;
import com.espertech.esper.common.client.EventPropertyGetter;
import com.espertech.esper.common.client.EventSender;
import com.espertech.esper.common.client.EventType;
import com.espertech.esper.common.client.configuration.Configuration;
import com.espertech.esper.common.client.hook.exception.ExceptionHandler;
import com.espertech.esper.common.client.hook.exception.ExceptionHandlerContext;
import com.espertech.esper.common.client.hook.exception.ExceptionHandlerFactory;
import com.espertech.esper.common.client.hook.exception.ExceptionHandlerFactoryContext;
import com.espertech.esper.common.client.util.EventUnderlyingType;
import com.espertech.esper.compiler.client.CompilerArguments;
import com.espertech.esper.compiler.client.EPCompilerProvider;
import com.espertech.esper.runtime.client.EPEventService;
import com.espertech.esper.runtime.client.EPRuntime;
import com.espertech.esper.runtime.client.EPRuntimeProvider;
import com.espertech.esper.runtime.client.EPStatement;
import com.espertech.esper.runtime.client.UpdateListener;

/**
 * Esper behind whole columns: one call of `push` makes the events of a batch, sets the clock before each and sends
 * them; what listeners get is put into columns that `take` hands over. Compiled by Janino, which comes with Esper: so
 * there are no generics and no lambdas here.
 *
 * The clock is event time in microseconds. It starts at 0, when the statements do, so that what they do every so often
 * is at multiples since the epoch, and leaps to the first event when it comes.
 */
public final class EsperFeed {
    private static final int TOGETHER = 4096;

    /** The share of the heap that is in use after a collection when there is an end: beyond it Java does little but
     * collect, and threads that it cannot do without die. */
    private static final double FULL = 0.85;

    private final boolean arrays;
    private final Configuration configuration = new Configuration();
    private final List names = new ArrayList();
    private final List columns = new ArrayList();
    private EventSender[] senders;
    private EPRuntime runtime;
    private EPEventService events;
    private final List outputs = new ArrayList();
    private final MemoryPoolMXBean old;
    private long now;
    private boolean begun;

    public EsperFeed(boolean arrays) {
        this.arrays = arrays;
        old = oldOnes();
        Thread.currentThread().setContextClassLoader(EsperFeed.class.getClassLoader());
        configuration.getRuntime().getThreading().setInternalTimerEnabled(false);
        configuration.getRuntime().getExceptionHandling().addClass(Failures.class);
        configuration.getCommon().getTimeSource().setTimeUnit(java.util.concurrent.TimeUnit.MICROSECONDS);
        configuration.getCommon().getEventMeta().setDefaultEventRepresentation(
            arrays ? EventUnderlyingType.OBJECTARRAY : EventUnderlyingType.MAP);
    }

    private static MemoryPoolMXBean oldOnes() {
        List pools = ManagementFactory.getMemoryPoolMXBeans();
        for (int i = 0; i < pools.size(); i++) {
            MemoryPoolMXBean pool = (MemoryPoolMXBean) pools.get(i);
            boolean lasting = pool.getName().contains("Old") || pool.getName().contains("Tenured");
            if (pool.getType() == MemoryType.HEAP && lasting && pool.isCollectionUsageThresholdSupported()) {
                pool.setCollectionUsageThreshold((long) (pool.getUsage().getMax() * FULL));
                return pool;
            }
        }
        return null;
    }

    /** Declares a type of events; its number is the count of those before. Types are names of Java's boxes. */
    public void stream(String name, String[] fields, String[] types) throws ClassNotFoundException {
        Object[] classes = new Object[types.length];
        Map typed = new HashMap();
        for (int i = 0; i < types.length; i++) {
            classes[i] = Class.forName("java.lang." + types[i]);
            typed.put(fields[i], classes[i]);
        }
        if (arrays) {
            configuration.getCommon().addEventType(name, fields, classes);
        } else {
            configuration.getCommon().addEventType(name, typed);
        }
        names.add(name);
        columns.add(fields);
    }

    public void start() {
        runtime = EPRuntimeProvider.getRuntime("penstock", configuration);
        runtime.initialize();
        events = runtime.getEventService();
        events.advanceTime(0L);
        senders = new EventSender[names.size()];
        for (int i = 0; i < senders.length; i++) {
            senders[i] = events.getEventSender((String) names.get(i));
        }
    }

    /** Compiles and starts a module; what its last statement selects are the results. */
    public void query(String name, String epl) throws Exception {
        EPStatement[] statements = deploy(epl);
        EPStatement last = statements[statements.length - 1];
        Output output = new Output(last.getEventType());
        last.addListener(output);
        outputs.add(output);
    }

    public EPStatement[] deploy(String epl) throws Exception {
        CompilerArguments arguments = new CompilerArguments(configuration);
        arguments.getPath().add(runtime.getRuntimePath());
        EPCompiled compiled = EPCompilerProvider.getCompiler().compile(epl, arguments);
        return runtime.getDeploymentService().deploy(compiled).getStatements();
    }

    public String[] fields(int query) {
        return ((Output) outputs.get(query)).fields;
    }

    /** Names of the results' types: Java's boxes; what is none of them is refused by the caller. */
    public String[] types(int query) {
        return ((Output) outputs.get(query)).types;
    }

    /** `texts[i]` has the offsets of a column of text, whose values are bytes; `valid[i]` is null without NULLs. */
    public void push(int stream, Object[] values, int[][] texts, boolean[][] valid, long[] times, int rows) {
        Object[][] boxed = new Object[Math.min(TOGETHER, rows)][];
        String[] fields = (String[]) columns.get(stream);
        EventSender sender = senders[stream];
        for (int from = 0; from < rows; from += TOGETHER) {
            int count = Math.min(TOGETHER, rows - from);
            if (old != null && old.isCollectionUsageThresholdExceeded()) {
                throw new OutOfMemoryError("the heap is full");
            }
            for (int i = 0; i < count; i++) {
                boxed[i] = new Object[values.length];
            }
            for (int c = 0; c < values.length; c++) {
                fill(boxed, c, values[c], texts[c], from, count);
                if (valid[c] != null) {
                    for (int i = 0; i < count; i++) {
                        if (!valid[c][from + i]) {
                            boxed[i][c] = null;
                        }
                    }
                }
            }
            for (int i = 0; i < count; i++) {
                if (times != null && times[from + i] > now) {
                    advance(times[from + i]);
                }
                if (arrays) {
                    sender.sendEvent(boxed[i]);
                } else {
                    Map event = new HashMap();
                    for (int c = 0; c < fields.length; c++) {
                        event.put(fields[c], boxed[i][c]);
                    }
                    sender.sendEvent(event);
                }
            }
        }
    }

    private void advance(long time) {
        if (begun) {
            events.advanceTimeSpan(time);
        } else {
            events.advanceTime(time - 1);
            for (int i = 0; i < outputs.size(); i++) {
                ((Output) outputs.get(i)).take();
            }
            events.advanceTime(time);
            begun = true;
        }
        now = time;
    }

    private static void fill(Object[][] boxed, int c, Object column, int[] text, int from, int count) {
        if (text != null) {
            byte[] bytes = (byte[]) column;
            for (int i = 0; i < count; i++) {
                int at = text[from + i];
                boxed[i][c] = new String(bytes, at, text[from + i + 1] - at, StandardCharsets.UTF_8);
            }
        } else if (column instanceof double[]) {
            double[] a = (double[]) column;
            for (int i = 0; i < count; i++) boxed[i][c] = Double.valueOf(a[from + i]);
        } else if (column instanceof long[]) {
            long[] a = (long[]) column;
            for (int i = 0; i < count; i++) boxed[i][c] = Long.valueOf(a[from + i]);
        } else if (column instanceof int[]) {
            int[] a = (int[]) column;
            for (int i = 0; i < count; i++) boxed[i][c] = Integer.valueOf(a[from + i]);
        } else if (column instanceof float[]) {
            float[] a = (float[]) column;
            for (int i = 0; i < count; i++) boxed[i][c] = Float.valueOf(a[from + i]);
        } else if (column instanceof short[]) {
            short[] a = (short[]) column;
            for (int i = 0; i < count; i++) boxed[i][c] = Short.valueOf(a[from + i]);
        } else if (column instanceof byte[]) {
            byte[] a = (byte[]) column;
            for (int i = 0; i < count; i++) boxed[i][c] = Byte.valueOf(a[from + i]);
        } else {
            boolean[] a = (boolean[]) column;
            for (int i = 0; i < count; i++) boxed[i][c] = Boolean.valueOf(a[from + i]);
        }
    }

    /** The input has ended: what is due next, such as the end of a slide, comes still. */
    public void finish() {
        Long next = events.getNextScheduledTime();
        if (begun && next != null) {
            events.advanceTimeSpan(next.longValue());
        }
    }

    public int waiting(int query) {
        return ((Output) outputs.get(query)).rows;
    }

    /** The rows since the last call: for each field its column (text as bytes), the offsets of text, what is not NULL. */
    public Object[] take(int query) {
        return ((Output) outputs.get(query)).take();
    }

    public void close() {
        if (runtime != null) {
            runtime.destroy();
        }
    }

    /** Without it Esper logs what fails in a statement and goes on. */
    public static final class Failures implements ExceptionHandlerFactory, ExceptionHandler {
        public ExceptionHandler getHandler(ExceptionHandlerFactoryContext context) {
            return this;
        }

        public void handle(ExceptionHandlerContext context) {
            throw new RuntimeException(context.getThrowable().toString() + " in: " + context.getEpl());
        }
    }

    private static final class Output implements UpdateListener {
        final String[] fields;
        final String[] types;
        private final EventPropertyGetter[] getters;
        private Column[] columns;
        int rows;

        Output(EventType type) {
            fields = type.getPropertyNames();
            types = new String[fields.length];
            getters = new EventPropertyGetter[fields.length];
            for (int i = 0; i < fields.length; i++) {
                types[i] = type.getPropertyType(fields[i]) == null ? "null" : type.getPropertyType(fields[i]).getName();
                getters[i] = type.getGetter(fields[i]);
            }
            clear();
        }

        private void clear() {
            columns = new Column[fields.length];
            for (int i = 0; i < fields.length; i++) {
                columns[i] = new Column(types[i]);
            }
            rows = 0;
        }

        public void update(EventBean[] arrived, EventBean[] left, EPStatement statement, EPRuntime runtime) {
            if (arrived == null) {
                return;
            }
            for (int i = 0; i < arrived.length; i++) {
                for (int c = 0; c < columns.length; c++) {
                    columns[c].add(rows, getters[c].get(arrived[i]));
                }
                rows++;
            }
        }

        Object[] take() {
            Object[] values = new Object[fields.length];
            Object[] texts = new Object[fields.length];
            Object[] valid = new Object[fields.length];
            for (int i = 0; i < fields.length; i++) {
                Column column = columns[i];
                values[i] = column.values(rows);
                texts[i] = column.offsets == null ? null : Arrays.copyOf(column.offsets, rows + 1);
                valid[i] = column.nulls == null ? null : Arrays.copyOf(column.nulls, rows);
            }
            clear();
            return new Object[] {values, texts, valid};
        }
    }

    /** A column that grows: whole numbers and truth as longs, others as doubles, text as bytes. */
    private static final class Column {
        private long[] longs;
        private double[] doubles;
        private byte[] bytes;
        int[] offsets;
        boolean[] nulls;

        Column(String type) {
            if (type.equals("java.lang.String")) {
                bytes = new byte[1024];
                offsets = new int[65];
            } else if (type.equals("java.lang.Double") || type.equals("java.lang.Float")) {
                doubles = new double[64];
            } else {
                longs = new long[64];
            }
        }

        void add(int row, Object value) {
            if (value == null) {
                if (nulls == null) {
                    nulls = new boolean[Math.max(64, row + 1)];
                }
            }
            if (nulls != null) {
                if (row >= nulls.length) {
                    nulls = Arrays.copyOf(nulls, 2 * row);
                }
                nulls[row] = value == null;
            }
            if (doubles != null) {
                if (row >= doubles.length) {
                    doubles = Arrays.copyOf(doubles, 2 * row);
                }
                doubles[row] = value == null ? 0.0 : ((Number) value).doubleValue();
            } else if (longs != null) {
                if (row >= longs.length) {
                    longs = Arrays.copyOf(longs, 2 * row);
                }
                if (value instanceof Boolean) {
                    longs[row] = ((Boolean) value).booleanValue() ? 1L : 0L;
                } else {
                    longs[row] = value == null ? 0L : ((Number) value).longValue();
                }
            } else {
                byte[] text = value == null ? new byte[0] : ((String) value).getBytes(StandardCharsets.UTF_8);
                if (row + 1 >= offsets.length) {
                    offsets = Arrays.copyOf(offsets, 2 * row + 2);
                }
                int at = offsets[row];
                if (at + text.length > bytes.length) {
                    bytes = Arrays.copyOf(bytes, 2 * (at + text.length));
                }
                System.arraycopy(text, 0, bytes, at, text.length);
                offsets[row + 1] = at + text.length;
            }
        }

        Object values(int rows) {
            if (doubles != null) {
                return Arrays.copyOf(doubles, rows);
            }
            if (longs != null) {
                return Arrays.copyOf(longs, rows);
            }
            return Arrays.copyOf(bytes, offsets[rows]);
        }
    }
}
