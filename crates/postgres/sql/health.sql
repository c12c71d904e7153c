-- Whether commits reach the disk, and how many transactions have kept their number for longer than five seconds: they
-- hold back who reads categories.
SELECT current_setting('fsync') = 'on' AND current_setting('synchronous_commit') <> 'off',
    (SELECT count(*) FROM pg_stat_activity
     WHERE backend_xid IS NOT NULL AND xact_start < clock_timestamp() - interval '5 seconds')
