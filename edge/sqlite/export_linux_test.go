package sqlite

// NetworkFSForTest tells what a statfs type is taken for.
func NetworkFSForTest(magic int64) (name string, refused bool) { return networkFS(magic) }
