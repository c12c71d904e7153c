SELECT t.parent, t.child_key, t.id FROM tasks t JOIN (SELECT $1::bigint AS ns, * FROM unnest($2::uuid[], $3::text[]) AS u(parent, key) OFFSET 0) u
    ON t.ns = u.ns AND t.parent = u.parent AND t.child_key = u.key
