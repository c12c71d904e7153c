INSERT INTO pollers (
    ns, queue, owner, at
)
SELECT
    $1, u.queue, u.owner, u.at
FROM (SELECT
    unnest($2::text[]) AS queue, unnest($3::text[]) AS owner, unnest($4::timestamptz[]) AS at
) u
