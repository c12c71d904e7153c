UPDATE floors t SET
    revision = u.revision
FROM (SELECT $1::bigint AS ns, unnest($2::text[]) AS kind, unnest($3::bigint[]) AS revision OFFSET 0) u
WHERE t.ns = u.ns AND t.kind = u.kind
