INSERT INTO documents (
    ns, kind, name, revision, schema_version, updated_at, expires_at, labels, content_type, body, content
)
SELECT
    $1, u.kind, u.name, u.revision, u.schema_version, u.updated_at, u.expires_at, u.labels, u.content_type,
    u.body, u.content
FROM (SELECT
    unnest($2::text[]) AS kind, unnest($3::text[]) AS name, unnest($4::bigint[]) AS revision,
    unnest($5::bigint[]) AS schema_version, unnest($6::timestamptz[]) AS updated_at,
    unnest($7::timestamptz[]) AS expires_at, unnest($8::jsonb[]) AS labels, unnest($9::text[]) AS content_type,
    unnest($10::json[]) AS body, unnest($11::bytea[]) AS content
) u
