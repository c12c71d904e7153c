        -- It is not known here who asks ($18, in the queue since $17), or some have keys ($19, $20): it must be known well enough
        -- that they ask, and none of the claims may have been made before.
        WHEN cardinality($18::text[]) > 0 AND cardinality($18) <> (
            SELECT count(*) FROM pollers p
            WHERE p.ns = $1 AND p.queue = $6 AND p.owner = ANY ($18) AND p.at <= $5 AND p.at > $17
        ) THEN NULL
        WHEN cardinality($20::text[]) > 0 AND NOT are_first_claims($1, $19, $20, $21) THEN NULL
