-- Those of one who writes under another name by now. What was given up stays so for longer: it may still be on its way.
DELETE FROM strokes WHERE pen = $1 AND ord IS NOT NULL
