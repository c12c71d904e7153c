SELECT coalesce(sum(revision - 1), 0)::bigint
FROM documents
WHERE ns = 1 AND kind = 'session' AND name >= $1 AND name < $1 || '~'
