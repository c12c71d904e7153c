-- Everything is found by a key, and planned once, whatever the server believes of the size of young tables. For the same
-- reason the statements name the order: what is asked for comes from arrays, and each row is found by LATERAL.
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_memoize = off;
SET plan_cache_mode = force_generic_plan
