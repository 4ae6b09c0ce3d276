package edge

// Trigger is what moves a delivery from one state to another.
type Trigger string

const (
	OnAccept          Trigger = "accept"
	OnPrepare         Trigger = "prepare"
	OnGrant           Trigger = "grant"
	OnDeny            Trigger = "deny"
	OnWithdraw        Trigger = "withdraw"
	OnClaim           Trigger = "claim"
	OnClaimStart      Trigger = "claim_start"
	OnAlreadyConsumed Trigger = "already_consumed"
	OnStart           Trigger = "start"
	OnRenew           Trigger = "renew"

	OnReleaseRetry     Trigger = "release retry"
	OnReleaseDefer     Trigger = "release defer"
	OnReleaseInterrupt Trigger = "release interrupt"
	OnReleaseBlock     Trigger = "release block"

	OnSettleSucceeded     Trigger = "settle succeeded"
	OnSettleFailed        Trigger = "settle failed"
	OnSettleRetry         Trigger = "settle retry"
	OnSettleDeferred      Trigger = "settle deferred"
	OnSettleInterrupted   Trigger = "settle interrupted"
	OnSettleBlocked       Trigger = "settle blocked"
	OnSettleIndeterminate Trigger = "settle indeterminate"
	OnSettleLate          Trigger = "settle late"

	OnLose             Trigger = "lease lost"
	OnEvidence         Trigger = "evidence"
	OnResolveSucceeded Trigger = "resolve succeeded"
	OnResolveFailed    Trigger = "resolve failed"
	OnResolveRetry     Trigger = "resolve retry"
	OnReconfigure      Trigger = "reconfigure"
	OnReroute          Trigger = "reroute"
	OnRetryNow         Trigger = "retry now"
	OnCancel           Trigger = "cancel"
	OnExpire           Trigger = "expire"
	OnRedrive          Trigger = "redrive"
	OnSkip             Trigger = "skip"
	OnPrune            Trigger = "prune"
)

// Charge is the budget that a move charges.
type Charge string

const (
	NoCharge      Charge = ""
	ChargeAttempt Charge = "attempt"
	ChargeLoss    Charge = "loss"
)

// Transition is one legal move. From "" means that the delivery is created by
// the move, To "" that its row is removed.
type Transition struct {
	From    State
	On      Trigger
	To      State
	Fenced  bool   // the write names the lease token
	Charge  Charge // the budget that the move charges
	When    string // the condition that chooses among rows of one From and On
	Meaning string
}

// Transitions is the table of all legal moves. The guards of the store, what
// the interfaces offer and the drawing in the docs follow it.
var Transitions = [...]Transition{
	{"", OnAccept, Pending, false, NoCharge, "", "the event was committed and is owed to this target"},
	{"", OnAccept, Held, false, NoCharge, "policy asks for consent", "waits for people to agree"},
	{"", OnAccept, Running, false, NoCharge, "claimable in the accepting commit", "inserted already claimed and started"},
	{"", OnAccept, Blocked, false, NoCharge, "the route failed on the event", "route_error: waits for the route to be mended"},
	{"", OnRedrive, Pending, false, NoCharge, "", "a new generation of a final delivery"},

	{Held, OnPrepare, Held, false, NoCharge, "", "the proposal is stored"},
	{Held, OnPrepare, Blocked, false, NoCharge, "inspection refuses", "there is nothing to consent to"},
	{Held, OnGrant, Pending, false, NoCharge, "", "people agreed"},
	{Held, OnDeny, Cancelled, false, NoCharge, "", "a person said no"},
	{Held, OnWithdraw, Cancelled, false, NoCharge, "", "the requester took it back"},
	{Held, OnCancel, Cancelled, false, NoCharge, "", "called off before it began"},
	{Held, OnSkip, Cancelled, false, NoCharge, "", "an operator lets the line go past it"},
	{Held, OnExpire, Expired, false, NoCharge, "", "its time passed"},

	{Pending, OnClaim, Leased, false, NoCharge, "", "a worker holds the target's lease"},
	{Pending, OnClaimStart, Running, false, NoCharge, "", "claimed and started in one commit: nothing to inspect"},
	{Pending, OnAlreadyConsumed, Succeeded, false, NoCharge, "", "the effect of this event for this consumer is done"},
	{Pending, OnRetryNow, Pending, false, NoCharge, "", "a waiting retry is due now; gate and line still hold it"},
	{Pending, OnCancel, Cancelled, false, NoCharge, "", "called off before it began"},
	{Pending, OnExpire, Expired, false, NoCharge, "", "its time passed, a waiting retry's too"},

	{Leased, OnStart, Running, true, NoCharge, "", "the start barrier: from this commit the effect may have begun"},
	{Leased, OnAlreadyConsumed, Succeeded, true, NoCharge, "", "the effect of this event for this consumer is done"},
	{Leased, OnRenew, Leased, true, NoCharge, "", "the lease's expiry moves"},
	{Leased, OnReleaseRetry, Pending, true, ChargeAttempt, "budget left", "inspection asks to try later"},
	{Leased, OnReleaseRetry, Failed, true, ChargeAttempt, "budget spent", "given up, with the handler's own code"},
	{Leased, OnReleaseDefer, Pending, true, NoCharge, "", "not now"},
	{Leased, OnReleaseInterrupt, Pending, true, NoCharge, "", "start refused, or shutdown before the start"},
	{Leased, OnReleaseBlock, Blocked, true, NoCharge, "", "inspection names a configuration fault"},
	{Leased, OnCancel, Cancelled, false, NoCharge, "", "called off before it began; the lease goes with it"},
	{Leased, OnLose, Pending, false, ChargeLoss, "losses left", "its owner died before the start"},
	{Leased, OnLose, Failed, false, ChargeLoss, "losses spent", "attempt_budget_exhausted"},

	{Running, OnRenew, Running, true, NoCharge, "", "the lease's expiry moves"},
	{Running, OnSettleSucceeded, Succeeded, true, NoCharge, "", "the effect is done; the consumption is written with it"},
	{Running, OnSettleFailed, Failed, true, ChargeAttempt, "", "repeating cannot help"},
	{Running, OnSettleRetry, Pending, true, ChargeAttempt, "budget left", "tried again later"},
	{Running, OnSettleRetry, Failed, true, ChargeAttempt, "budget spent", "given up, with the handler's own code"},
	{Running, OnSettleRetry, Cancelled, true, ChargeAttempt, "cancel was asked for", "called off instead of tried again"},
	{Running, OnSettleDeferred, Pending, true, NoCharge, "", "not now, and nothing begun"},
	{Running, OnSettleDeferred, Cancelled, true, NoCharge, "cancel was asked for", "called off instead of tried again"},
	{Running, OnSettleInterrupted, Pending, true, NoCharge, "the effect may be repeated", "cut by shutdown"},
	{Running, OnSettleInterrupted, Blocked, true, NoCharge, "once", "outcome_unknown: asks for evidence or a person"},
	{Running, OnSettleInterrupted, Cancelled, true, NoCharge, "cancel was asked for", "called off"},
	{Running, OnSettleBlocked, Blocked, true, NoCharge, "", "a configuration fault; nothing had begun"},
	{Running, OnSettleIndeterminate, Blocked, true, NoCharge, "once", "outcome_unknown: asks for evidence or a person"},
	{Running, OnSettleIndeterminate, Pending, true, ChargeAttempt, "the effect may be repeated", "as retry"},
	{Running, OnSettleIndeterminate, Failed, true, ChargeAttempt, "the effect may be repeated, budget spent", "as retry"},
	{Running, OnSettleIndeterminate, Cancelled, true, ChargeAttempt, "the effect may be repeated, cancel was asked for", "as retry"},
	{Running, OnCancel, Running, false, NoCharge, "", "the handler is told; what is observed is stored"},
	{Running, OnLose, Pending, false, ChargeLoss, "the effect may be repeated, losses left", "its owner died"},
	{Running, OnLose, Failed, false, ChargeLoss, "the effect may be repeated, losses spent", "attempt_budget_exhausted"},
	{Running, OnLose, Cancelled, false, ChargeLoss, "the effect may be repeated, cancel was asked for", "called off instead of tried again"},
	{Running, OnLose, Blocked, false, ChargeLoss, "once", "lost_after_start: asks for evidence or a person"},

	{Blocked, OnSettleLate, Succeeded, true, NoCharge, "the execution's own unresolved loss", "the result that was thought lost"},
	{Blocked, OnSettleLate, Failed, true, ChargeAttempt, "the execution's own unresolved loss", "the result that was thought lost"},
	{Blocked, OnEvidence, Succeeded, false, NoCharge, "verified", "evidence says that it happened"},
	{Blocked, OnEvidence, Failed, false, NoCharge, "verified", "evidence says that it did not"},
	{Blocked, OnResolveSucceeded, Succeeded, false, NoCharge, "", "a person says that it happened"},
	{Blocked, OnResolveFailed, Failed, false, NoCharge, "", "a person says that it did not, or gives it up"},
	{Blocked, OnResolveRetry, Failed, false, NoCharge, "", "as failed, and a new generation takes the old place in line"},
	{Blocked, OnSkip, Failed, false, NoCharge, "", "as resolve failed"},
	{Blocked, OnReconfigure, Pending, false, NoCharge, "blocked for a configuration reason", "the handler's configuration changed or came back"},
	{Blocked, OnReconfigure, Cancelled, false, NoCharge, "blocked for a configuration reason, cancel was asked for", "called off instead of tried again"},
	{Blocked, OnReroute, Pending, false, NoCharge, "route_error", "the route works now; it joins the tail of its target"},
	{Blocked, OnReroute, Cancelled, false, NoCharge, "the event has a delivery to that target", "the effect is owed already"},

	{Succeeded, OnPrune, "", false, NoCharge, "", "older than it is kept"},
	{Failed, OnPrune, "", false, NoCharge, "", "older than it is kept"},
	{Cancelled, OnPrune, "", false, NoCharge, "", "older than it is kept"},
	{Expired, OnPrune, "", false, NoCharge, "", "older than it is kept"},
}

// Legal reports whether trigger on can move a delivery out of state from.
func Legal(from State, on Trigger) bool {
	for i := range Transitions {
		if Transitions[i].From == from && Transitions[i].On == on {
			return true
		}
	}
	return false
}

// Situation is what the end of an execution is judged by.
type Situation struct {
	Effect        Effect // as declared at the claim
	NowMS         int64
	Cancel        bool  // cancelling was asked for
	Attempts      int   // charged before this move
	Losses        int   // lost before this move
	FirstStartMS  int64 // 0 when none started
	DelayMS       int64 // until the next attempt, from now
	MaxAttempts   int   // the retry budget; 0 = no limit by count
	GiveUpAfterMS int64 // 0 = no limit by time
	MaxLosses     int   // 0 = DefaultMaxLosses
	ClockDoubted  bool  // the wall clock is not trusted: giving up by time stands still
	Code          string
}

// Verdict is where a delivery goes.
type Verdict struct {
	To       State
	Code     string
	DueMS    int64 // for To == Pending
	Attempts int
	Losses   int
}

// DefaultMaxLosses is how many executions of one delivery may be lost to
// crashes before it is given up.
const DefaultMaxLosses = 10

// MinDeferMS is the least time by which deferred and interrupted work is put
// off, so that nothing spins.
const MinDeferMS = 1000

// Judge decides where trigger on leads in situation s. It is the one place that
// weighs budgets, effects and a wish to cancel; the caller has checked that the
// move is legal and that the fence holds.
func Judge(on Trigger, s Situation) Verdict {
	v := Verdict{Code: s.Code, Attempts: s.Attempts, Losses: s.Losses}
	repeatable := s.Effect == Idempotent || s.Effect == Transactional
	switch on {
	case OnSettleSucceeded:
		v.To = Succeeded
	case OnSettleFailed:
		v.To, v.Attempts = Failed, s.Attempts+1
	case OnSettleBlocked, OnReleaseBlock:
		v.To = Blocked
	case OnSettleRetry, OnReleaseRetry:
		v = s.retry(v)
	case OnSettleIndeterminate:
		if !repeatable {
			v.To, v.Code = Blocked, CodeOutcomeUnknown
			break
		}
		v = s.retry(v)
	case OnSettleInterrupted:
		if !repeatable {
			v.To, v.Code = Blocked, CodeOutcomeUnknown
			break
		}
		v = s.again(v, MinDeferMS)
	case OnSettleDeferred, OnReleaseDefer, OnReleaseInterrupt:
		v = s.again(v, max(s.DelayMS, MinDeferMS))
	}
	return v
}

// JudgeLoss decides where a lost lease leads. started says whether the start
// barrier had been crossed.
func JudgeLoss(started bool, s Situation) Verdict {
	v := Verdict{Code: CodeLeaseLost, Attempts: s.Attempts, Losses: s.Losses + 1}
	if started && s.Effect != Idempotent && s.Effect != Transactional {
		v.To, v.Code = Blocked, CodeLostAfterStart
		return v
	}
	limit := s.MaxLosses
	if limit <= 0 {
		limit = DefaultMaxLosses
	}
	switch {
	case s.Cancel:
		v.To, v.Code = Cancelled, CodeCancelled
	case v.Losses >= limit:
		v.To, v.Code = Failed, CodeBudgetExhausted
	default:
		v.To, v.DueMS = Pending, s.NowMS
	}
	return v
}

func (s Situation) retry(v Verdict) Verdict {
	v.Attempts = s.Attempts + 1
	delay := max(s.DelayMS, 1)
	spent := s.MaxAttempts > 0 && v.Attempts >= s.MaxAttempts
	if s.GiveUpAfterMS > 0 && !s.ClockDoubted && s.FirstStartMS > 0 &&
		s.NowMS+delay > s.FirstStartMS+s.GiveUpAfterMS {
		spent = true
	}
	if spent && !s.Cancel {
		v.To = Failed
		return v
	}
	return s.again(v, delay)
}

func (s Situation) again(v Verdict, delayMS int64) Verdict {
	if s.Cancel {
		v.To, v.Code = Cancelled, CodeCancelled
		return v
	}
	v.To, v.DueMS = Pending, s.NowMS+delayMS
	return v
}
