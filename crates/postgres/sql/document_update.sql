UPDATE documents t SET
    revision = u.revision, schema_version = u.schema_version, updated_at = u.updated_at,
    expires_at = u.expires_at, labels = u.labels, content_type = u.content_type, body = u.body,
    content = u.content
FROM (SELECT $1::bigint AS ns,
    unnest($2::text[]) AS kind, unnest($3::text[]) AS name, unnest($4::bigint[]) AS revision,
    unnest($5::bigint[]) AS schema_version, unnest($6::timestamptz[]) AS updated_at,
    unnest($7::timestamptz[]) AS expires_at, unnest($8::jsonb[]) AS labels, unnest($9::text[]) AS content_type,
    unnest($10::json[]) AS body, unnest($11::bytea[]) AS content
OFFSET 0) u
WHERE t.ns = u.ns AND t.kind = u.kind AND t.name = u.name
