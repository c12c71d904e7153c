UPDATE floors t SET
    revision = u.revision
FROM (SELECT $1::bigint AS ns, * FROM unnest(
    $2::text[], $3::bigint[]
) AS u(
    kind, revision
) OFFSET 0) u
WHERE t.ns = u.ns AND t.kind = u.kind
