package api

import "fencepost/edge"

// Storage is what the store holds and has left, in JSON.
type Storage struct {
	State        edge.StorageState `json:"state"`
	Reason       string            `json:"reason,omitempty"` // why it is not healthy, and what to do
	SpentReserve bool              `json:"spent_reserve,omitempty"`

	FileBytes     int64 `json:"file_bytes"`
	LogBytes      int64 `json:"log_bytes"`
	ReserveBytes  int64 `json:"reserve_bytes"`
	FreeBytes     int64 `json:"free_bytes"` // -1 = not known
	LowWaterBytes int64 `json:"low_water_bytes"`

	OpenBytes      int64 `json:"open_bytes"`     // deliveries that are not done
	MaxOpenBytes   int64 `json:"max_open_bytes"` // 0 = no bound
	SucceededBytes int64 `json:"succeeded_bytes"`
	FailedBytes    int64 `json:"failed_bytes"`

	DaysLeft   float64 `json:"days_left"` // until the low-water mark, at the pace of the last hours; -1 = not growing or not known
	Refused    int64   `json:"refused"`
	ReadersCut int64   `json:"readers_cut"`
}

// StorageOf is the JSON form of s.
func StorageOf(s edge.Storage) Storage {
	return Storage{
		State: s.State, Reason: s.Reason, SpentReserve: s.SpentReserve,
		FileBytes: s.FileBytes, LogBytes: s.LogBytes, ReserveBytes: s.ReserveBytes, FreeBytes: s.FreeBytes, LowWaterBytes: s.LowWaterBytes,
		OpenBytes: s.OpenBytes, MaxOpenBytes: s.MaxOpenBytes, SucceededBytes: s.SucceededBytes, FailedBytes: s.FailedBytes,
		DaysLeft: s.DaysLeft, Refused: s.Refused, ReadersCut: s.ReadersCut,
	}
}
