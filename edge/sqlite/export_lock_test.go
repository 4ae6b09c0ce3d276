package sqlite

// LockOwnerForTest takes the lock that proves an opening alive.
func LockOwnerForTest(db, owner string) (release func(), err error) {
	f, err := lockOwner(ownerLockPath(db, owner))
	if err != nil {
		return nil, err
	}
	return func() { _ = f.Unlock() }, nil
}

// TidyForTest removes the lock files of dead owners, as every opening does.
func TidyForTest(db string) { removeStaleOwnerLocks(db, "") }

// OwnerIsDeadForTest tells what another process would say of an owner.
func OwnerIsDeadForTest(db, owner string) bool { return ownerIsDead(db, owner) }

// TakePatientlyForTest takes the lock of a database by take.
func TakePatientlyForTest(db string, take func() (bool, error)) (bool, error) {
	return takePatiently(db, take)
}
