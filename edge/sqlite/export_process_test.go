package sqlite

// Tests open databases past the store too, and the first lock of the process ends
// the time for these settings.
func init() {
	if err := processSettings(); err != nil {
		panic(err)
	}
}
