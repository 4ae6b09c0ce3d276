package edgetest

import "fencepost/edge"

// Storage tells what the model holds. It has room for ever.
func (m *Model) Storage() edge.Storage {
	m.lock <- struct{}{}
	defer func() { <-m.lock }()
	st := edge.Storage{State: edge.StorageHealthy, FreeBytes: -1, DaysLeft: -1}
	select {
	case <-m.failed:
		st.State, st.Reason = edge.StorageFault, "the model was made to fail"
	default:
	}
	owed := map[edge.EventID]bool{}
	for _, d := range m.deliveries {
		owed[d.Event] = true
		switch {
		case d.State == edge.Succeeded:
			st.SucceededBytes += d.bytes
		case d.State.Final():
			st.FailedBytes += d.bytes
		default:
			st.OpenBytes += d.bytes
		}
	}
	for id, e := range m.events {
		if !owed[id] {
			st.SucceededBytes += int64(len(e.Data))
		}
	}
	return st
}
