INSERT INTO chores (ns, chore, after) VALUES (?1, ?2, ?3)
ON CONFLICT (ns, chore) DO UPDATE SET after = excluded.after
