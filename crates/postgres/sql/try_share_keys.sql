SELECT coalesce(bool_and(pg_try_advisory_xact_lock_shared(k)), true) FROM unnest($1::bigint[]) AS u(k)
