UPDATE documents t SET
    revision = u.revision, schema_version = u.schema_version, updated_at = u.updated_at,
    expires_at = u.expires_at, labels = u.labels, content_type = u.content_type, body = u.body,
    content = u.content
FROM (SELECT $1::bigint AS ns, * FROM unnest(
    $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::timestamptz[], $7::timestamptz[], $8::jsonb[],
    $9::text[], $10::json[], $11::bytea[]
) AS u(
    kind, name, revision, schema_version, updated_at, expires_at, labels, content_type, body, content
) OFFSET 0) u
WHERE t.ns = u.ns AND t.kind = u.kind AND t.name = u.name
