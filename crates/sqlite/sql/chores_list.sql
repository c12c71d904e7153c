SELECT chore, after FROM chores WHERE ns = ?1
