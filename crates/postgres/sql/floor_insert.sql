INSERT INTO floors (
    ns, kind, revision
)
SELECT
    $1, u.kind, u.revision
FROM unnest(
    $2::text[], $3::bigint[]
) AS u(
    kind, revision
)
