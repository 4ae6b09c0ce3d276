package edge

// BackupReport tells of a backup that was made.
type BackupReport struct {
	Path    string
	Bytes   int64
	FromNo  int64 // last commit before it began: all of that is in it
	Commit  int64 // last commit that is in it
	Node    string
	TookMS  int64
	Checked []string // what was checked before it got its name
}

// RestoreReport tells of a restored database.
type RestoreReport struct {
	Path       string
	From       string
	Commit     int64 // last commit of the backup
	ExpectedNo int64 // last commit of the database that it replaces, by its side file; -1 = there was none
	Aside      []string
	Node       string // as new rows bear it
	Renamed    bool   // that is a new one
}
