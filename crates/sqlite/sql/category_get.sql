SELECT c.category, n.loaded, n.ahead FROM categories c JOIN namespaces n ON n.ns = c.ns WHERE c.ns = ?1 AND c.name = ?2
