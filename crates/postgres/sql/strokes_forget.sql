-- Those of everyone whose name is older.
DELETE FROM strokes WHERE pen < $1
