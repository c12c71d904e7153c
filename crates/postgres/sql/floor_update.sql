UPDATE floors t SET
    revision = u.revision
FROM unnest(
    $2::text[], $3::bigint[]
) AS u(
    kind, revision
)
WHERE t.ns = $1 AND t.kind = u.kind
