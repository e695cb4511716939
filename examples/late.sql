-- Events out of order: up to a minute is waited for, what comes later still is kept aside with LATE INTO.
-- Rows that cannot be read (a price that is no number) go to the reject file.
--
--   penstock run examples/late.sql --rejects out/rejects

CREATE STREAM orders (
    at     TIMESTAMP NOT NULL,
    id     BIGINT,
    shop   STRING,
    amount DOUBLE,
    EVENT TIME at LATENESS 1 MINUTE SEQUENCE id
) FROM 'examples/orders.csv' LATE INTO too_late;

CREATE SINK too_late TO 'out/late_orders.csv';

SELECT shop, COUNT(*) AS orders, SUM(amount) AS amount, MAX(amount) FILTER (WHERE amount > 10) AS largest_over_10
FROM orders [RANGE 10 MINUTES SLIDE 5 MINUTES]
GROUP BY shop
ORDER BY amount DESC;
