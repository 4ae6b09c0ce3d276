package metrics

import (
	"fencepost/edge"

	"github.com/prometheus/client_golang/prometheus"
)

// descriptions is every metric of this package.
var descriptions []*prometheus.Desc

func describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("fencepost_"+name, help, labels, nil)
	descriptions = append(descriptions, d)
	return d
}

// The node.
var (
	buildInfo    = describe("build_info", "1, with the version of the program and of Go.", "version", "go_version")
	startTime    = describe("start_time_seconds", "When the node was started, seconds since 1970.")
	ready        = describe("ready", "1 while the node takes and dispatches events.")
	goroutines   = describe("goroutines", "Goroutines of the process.")
	clockDoubted = describe("clock_doubted", "1 while the wall clock is doubted: nothing expires, is given up by time or is pruned.")
	uplinkUp     = describe("uplink_up", "1 while the network of an uplink is there, 0 while we are offline.", "uplink")
	scrapeFaults = describe("scrape_faults", "Parts of this scrape that could not be read of the database and are left out.")
)

// Intake.
var (
	events         = describe("events_total", "Events handed in, by what became of them: accepted, existing (had been accepted before), conflict (other content under their source and id).", "result")
	eventsUnrouted = describe("events_unrouted_total", "Accepted events that no route took.")
	eventsRefused  = describe("events_refused_total", "Events refused since the node was started, because the backlog is full or there is too little space.")
	keyedRequests  = describe("keyed_requests_total", "Requests with an Idempotency-Key that was known: replayed, or refused as another request.", "result")
	httpRequests   = describe("http_requests_total", "Requests to the network listener since the node was started, by route and class of status.", "route", "status")
	httpDuration   = describe("http_request_duration_seconds", "How long requests took on the network listener, from the end of the header to the answer.", "route")
)

// Deliveries and executions.
var (
	deliveries         = describe("deliveries", "Deliveries by state, those that are final as long as they are kept.", "state")
	deliveriesEnded    = describe("deliveries_ended_total", "Deliveries that became final, by state.", "state")
	deliveriesInFlight = describe("deliveries_in_flight", "Deliveries leased or running.", "handler")
	oldestWaiting      = describe("oldest_waiting_seconds", "How long ago the oldest delivery that waits was accepted; 0 when none does.")
	claims             = describe("claims_total", "Executions claimed.")
	starts             = describe("starts_total", "Executions started.")
	executionsEnded    = describe("executions_total", "Executions that ended since the node was started, by handler and outcome.", "handler", "outcome")
	executionDuration  = describe("execution_duration_seconds", "How long executions took, from the claim to the stored end.", "handler")
	liveExecutions     = describe("executions_live", "Executions that are claimed, running or being stored.")
	heldResults        = describe("results_held", "Of those, results that wait for the storage.")
	stubbornHandlers   = describe("handlers_stubborn", "Of those, handlers that go on though their time is over.")
	handlerOpen        = describe("handler_open", "1 while the gate of a handler is on.", "handler")
	handlerFailing     = describe("handler_failing", "1 during an episode in which a handler's other side fails.", "handler")
	leasesLost         = describe("leases_lost_total", "Executions since the node was started whose lease was gone before their end could be stored.")
	recovered          = describe("recovered_total", "Leases of dead or silent owners that were settled since the node was started.")
	lostExecutions     = describe("executions_lost_total", "Executions found lost, by any owner.")
	staleSettles       = describe("stale_settles_total", "Ends that were refused because their lease was gone, and changed nothing.")
	lateSettles        = describe("late_settles_total", "Results that arrived late and were kept for people to see.")
	recoveriesOpened   = describe("recoveries_opened_total", "Executions of once work whose outcome is unknown.")
	halts              = describe("halts_total", "Lines halted by a failed delivery.")
	redrives           = describe("redrives_total", "New generations made by people.")
	resolved           = describe("resolved_total", "Blocked deliveries decided by people, by decision.", "as")
	followUps          = describe("follow_ups_total", "Events accepted with the end of a delivery.")
	dropped            = describe("backlog_dropped_total", "Waiting deliveries dropped because the backlog was full.")
	pruned             = describe("pruned_total", "Final deliveries that are no longer kept.")
)

// Storage.
var (
	commitsTotal    = describe("commits_total", "Commits of this process that wrote something.")
	operationsTotal = describe("commit_operations_total", "Operations in those commits; divided by them, the size of a batch.")
	storageState    = describe("storage_state", "1 for the state that the storage is in: healthy, low_space, fault.", "state")
	fileBytes       = describe("file_bytes", "Size of the files of the database: database, log, reserve.", "file")
	freeBytes       = describe("disk_free_bytes", "Free space of the disk for the node; absent when it is not known.")
	lowWaterBytes   = describe("disk_low_water_bytes", "Below this much free space no events are taken; 0 is no such mark.")
	keptBytes       = describe("kept_bytes", "What deliveries hold, by class: open, succeeded, failed.", "class")
	maxBacklogBytes = describe("backlog_max_bytes", "Bound of what open deliveries hold; 0 is none.")
	daysLeft        = describe("disk_left_days", "In how many days the low-water mark is reached at the pace of the last hours; absent while the database does not grow.")
	readersCut      = describe("readers_cut_total", "Reads ended since the node was started because they held up the log.")
)

// storedCounter is a counter of the store, and the sample that it is.
type storedCounter struct {
	name   string
	desc   *prometheus.Desc
	gauge  bool
	labels []string
}

// stored are the counters of the store that are shown.
var stored = storedCounters()

func storedCounters() []storedCounter {
	all := []storedCounter{
		{"accepted", events, false, []string{"accepted"}},
		{"accept_existing", events, false, []string{"existing"}},
		{"accept_conflicts", events, false, []string{"conflict"}},
		{"accept_unrouted", eventsUnrouted, false, nil},
		{"accept_replayed", keyedRequests, false, []string{"replayed"}},
		{"accept_key_reused", keyedRequests, false, []string{"refused"}},
		{"claims", claims, false, nil},
		{"starts", starts, false, nil},
		{"outcome_lost", lostExecutions, false, nil},
		{"stale_settles", staleSettles, false, nil},
		{"late_settles", lateSettles, false, nil},
		{"recoveries_opened", recoveriesOpened, false, nil},
		{"halts", halts, false, nil},
		{"redrives", redrives, false, nil},
		{"follow_ups", followUps, false, nil},
		{"backlog_dropped", dropped, false, nil},
		{"pruned", pruned, false, nil},
	}
	for _, s := range edge.States {
		all = append(all, storedCounter{"state." + string(s), deliveries, true, []string{string(s)}})
		if s.Final() {
			all = append(all, storedCounter{"final_" + string(s), deliveriesEnded, false, []string{string(s)}})
		}
	}
	for _, as := range [...]edge.ResolveAs{edge.ResolveSucceeded, edge.ResolveFailed, edge.ResolveRetry} {
		all = append(all, storedCounter{"resolved_" + string(as), resolved, false, []string{string(as)}})
	}
	return all
}
