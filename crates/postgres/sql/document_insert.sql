INSERT INTO documents (
    ns, kind, name, revision, schema_version, updated_at, expires_at, labels, content_type, body, content
)
SELECT
    $1, u.kind, u.name, u.revision, u.schema_version, u.updated_at, u.expires_at, u.labels, u.content_type,
    u.body, u.content
FROM unnest(
    $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::timestamptz[], $7::timestamptz[], $8::jsonb[],
    $9::text[], $10::json[], $11::bytea[]
) AS u(
    kind, name, revision, schema_version, updated_at, expires_at, labels, content_type, body, content
)
