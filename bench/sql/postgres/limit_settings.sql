-- Everything is found by a key, whatever the server believes of the size of young tables, and planned once.
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET plan_cache_mode = force_generic_plan
