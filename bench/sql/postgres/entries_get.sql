SELECT t.key, t.value, t.set_at, t.expires_at
FROM unnest($1::text[]) AS u(key) CROSS JOIN LATERAL (
    SELECT * FROM entries WHERE ns = 1 AND key = u.key AND expires_at > now() OFFSET 0
) t
