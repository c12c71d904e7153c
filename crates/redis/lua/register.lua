-- The functions that can be called. VERSION stands for the version of this library, so that several releases can use one
-- server.
redis.register_function('statehold_VERSION_commit', commit)
redis.register_function('statehold_VERSION_claim', claim)
redis.register_function('statehold_VERSION_reserve', reserve)
redis.register_function('statehold_VERSION_fate', fate)
redis.register_function { function_name = 'statehold_VERSION_listen', callback = listen, flags = { 'no-writes' } }
redis.register_function { function_name = 'statehold_VERSION_range', callback = range, flags = { 'no-writes' } }
redis.register_function { function_name = 'statehold_VERSION_events', callback = events, flags = { 'no-writes' } }
redis.register_function { function_name = 'statehold_VERSION_category', callback = category, flags = { 'no-writes' } }
redis.register_function { function_name = 'statehold_VERSION_since', callback = since, flags = { 'no-writes' } }
