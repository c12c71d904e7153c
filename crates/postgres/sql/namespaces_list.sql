-- Those in which there is anything; the name of one that is empty stays known.
SELECT n.name FROM namespaces n
WHERE (EXISTS (SELECT 1 FROM tasks t WHERE t.ns = n.ns)
    OR EXISTS (SELECT 1 FROM streams t WHERE t.ns = n.ns)
    OR EXISTS (SELECT 1 FROM trims t WHERE t.ns = n.ns)
    OR EXISTS (SELECT 1 FROM queues t WHERE t.ns = n.ns)
    OR EXISTS (SELECT 1 FROM pollers t WHERE t.ns = n.ns)
    OR EXISTS (SELECT 1 FROM groups t WHERE t.ns = n.ns)
    OR EXISTS (SELECT 1 FROM documents t WHERE t.ns = n.ns)
    OR EXISTS (SELECT 1 FROM floors t WHERE t.ns = n.ns)
    OR EXISTS (SELECT 1 FROM entries t WHERE t.ns = n.ns)
    OR EXISTS (SELECT 1 FROM locks t WHERE t.ns = n.ns)
    OR EXISTS (SELECT 1 FROM answers t WHERE t.ns = n.ns))
ORDER BY n.name
