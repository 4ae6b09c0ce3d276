package edge

import "fmt"

// StorageState says what the store can take.
type StorageState string

const (
	// StorageHealthy: everything is taken.
	StorageHealthy StorageState = "healthy"
	// StorageLow: there is too little space. No event is taken and nothing
	// new is begun ([ErrLowSpace]); what is under way is stored. It ends by
	// itself when there is space.
	StorageLow StorageState = "low_space"
	// StorageFault: the store has failed for good in this process
	// ([ErrStorage]).
	StorageFault StorageState = "fault"
)

// Errors of bounds. Both wrap [ErrUnavailable]: nothing was stored, and the same
// call may be repeated later.
var (
	// ErrBacklogFull: what waits has reached its bound in bytes.
	ErrBacklogFull = fmt.Errorf("%w: the backlog is full", ErrUnavailable)
	// ErrLowSpace: the disk, or the log of the database, has too little
	// space ([StorageLow]).
	ErrLowSpace = fmt.Errorf("%w: too little space", ErrUnavailable)
)

// Storage is what a store holds and has left. It is known without reading rows.
type Storage struct {
	State  StorageState
	Reason string // why it is not healthy, and what to do
	// SpentReserve: the disk was full and the reserve was given up; only
	// ends of what is under way are stored.
	SpentReserve bool

	FileBytes     int64 // of the database file
	LogBytes      int64 // of its write-ahead log
	ReserveBytes  int64 // kept aside for a full disk; 0 when given up
	FreeBytes     int64 // free on the disk for this user; -1 = not known
	LowWaterBytes int64 // below this the state is StorageLow; 0 = no such mark

	OpenBytes      int64 // deliveries that are not final
	MaxOpenBytes   int64 // bound of OpenBytes; 0 = none
	SucceededBytes int64 // succeeded deliveries, and data of events that no route matched
	FailedBytes    int64 // failed, cancelled and expired deliveries

	// DaysLeft is in how many days the low-water mark is reached at the pace
	// of the last hours; below 0 = the file does not grow, or not known yet.
	DaysLeft float64

	Refused    int64 // events refused since opening: backlog or space
	ReadersCut int64 // reads ended since opening because they held the log up
}
