INSERT INTO floors (ns, kind, revision) VALUES (?1, ?2, ?3)
ON CONFLICT (ns, kind) DO UPDATE SET revision = excluded.revision
