SELECT t.parent, t.child_key, t.id FROM tasks t JOIN unnest($2::uuid[], $3::text[]) AS u(parent, key)
    ON t.ns = $1 AND t.parent = u.parent AND t.child_key = u.key
