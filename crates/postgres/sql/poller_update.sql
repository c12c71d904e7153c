UPDATE pollers t SET
    at = u.at
FROM (SELECT $1::bigint AS ns,
    unnest($2::text[]) AS queue, unnest($3::text[]) AS owner, unnest($4::timestamptz[]) AS at
OFFSET 0) u
WHERE t.ns = u.ns AND t.queue = u.queue AND t.owner = u.owner
