package access

import "rocelink"

// Kind is what a user is.
type Kind string

// The kinds.
const (
	Board    Kind = "board"    // publishes its own subjects and answers requests
	Agent    Kind = "agent"    // runs streams on boards, publishes its own subjects
	Operator Kind = "operator" // calls every endpoint of every board
	Observer Kind = "observer" // listens
)

// Kinds lists every kind.
var Kinds = []Kind{Board, Agent, Operator, Observer}

// rules are the subjects a user may publish and subscribe to.
type rules struct {
	publish, subscribe []string
	responses          bool // may answer each request once
}

// What everyone but a board listens to: statuses, events and windows. Requests
// are nobody's but the board's.
var records = []string{
	rocelink.AnyBoardStatus, rocelink.AnyBoardEvent, rocelink.AnyHostStatus, rocelink.AnyHostEvent, rocelink.AnyWindow,
}

// JetStream's interface (docs of NATS, "JetStream wire API"): what a reader of
// the last states and of the past events asks.
func historyReads() (subjects []string) {
	for _, stream := range []string{"KV_" + rocelink.StatusBucket, rocelink.EventStream} {
		subjects = append(subjects,
			"$JS.API.STREAM.INFO."+stream,
			"$JS.API.DIRECT.GET."+stream, "$JS.API.DIRECT.GET."+stream+".>",
			"$JS.API.STREAM.MSG.GET."+stream,
			"$JS.API.CONSUMER.CREATE."+stream, "$JS.API.CONSUMER.CREATE."+stream+".>",
			"$JS.API.CONSUMER.INFO."+stream+".>",
			"$JS.API.CONSUMER.DELETE."+stream+".>",
			"$JS.API.CONSUMER.MSG.NEXT."+stream+".>",
			"$JS.ACK."+stream+".>",
			"$JS.FC."+stream+".>",
		)
	}
	return subjects
}

// historyKeeps is what making and changing both asks.
func historyKeeps() (subjects []string) {
	subjects = []string{"$JS.API.INFO"}
	for _, stream := range []string{"KV_" + rocelink.StatusBucket, rocelink.EventStream} {
		subjects = append(subjects, "$JS.API.STREAM.CREATE."+stream, "$JS.API.STREAM.UPDATE."+stream)
	}
	return subjects
}

// rulesFor is the least that a user needs.
func rulesFor(u User, key string) rules {
	r := rules{subscribe: []string{rocelink.KeyInbox(key) + ".>"}}
	switch u.Kind {
	case Board:
		r.publish = []string{
			rocelink.BoardStatusSubject(u.Name), rocelink.BoardEventSubject(u.Name),
			"$KV." + rocelink.StatusBucket + "." + rocelink.BoardKey(u.Name),
			"$JS.API.STREAM.INFO.KV_" + rocelink.StatusBucket,
		}
		r.subscribe = append(r.subscribe, rocelink.BoardInbox(u.Name)+".>", rocelink.RequestSubject(u.Name, ">"),
			// Its own status: that is how it sees another board of its name.
			rocelink.BoardStatusSubject(u.Name))
		for _, verb := range []string{"PING", "INFO", "STATS"} {
			r.subscribe = append(r.subscribe, "$SRV."+verb, "$SRV."+verb+"."+rocelink.ServiceName, "$SRV."+verb+"."+rocelink.ServiceName+".*")
		}
		r.responses = true
	case Agent:
		r.publish = []string{
			rocelink.HostStatusSubject(u.Name), rocelink.HostEventSubject(u.Name), rocelink.WindowSubjects(u.Name),
			"$KV." + rocelink.StatusBucket + "." + rocelink.HostKey(u.Name),
		}
		for _, endpoint := range rocelink.AgentEndpoints {
			if len(u.Boards) == 0 {
				r.publish = append(r.publish, rocelink.AnyRequest(endpoint))
			}
			for _, board := range u.Boards {
				r.publish = append(r.publish, rocelink.RequestSubject(board, endpoint))
			}
		}
		r.publish = append(r.publish, historyReads()...)
		r.publish = append(r.publish, historyKeeps()...)
		r.subscribe = append(r.subscribe, rocelink.HostInbox(u.Name)+".>")
		r.subscribe = append(r.subscribe, records...)
	case Operator:
		r.publish = []string{rocelink.AnyRequest(">"), "$SRV.>"}
		r.publish = append(r.publish, historyReads()...)
		r.publish = append(r.publish, historyKeeps()...)
		r.subscribe = append(r.subscribe, records...)
	case Observer:
		r.publish = historyReads()
		r.subscribe = append(r.subscribe, records...)
	}
	return r
}
