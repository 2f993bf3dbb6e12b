package board

import (
	"context"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"rocelink"
	"rocelink/firmware/update"
)

const (
	// maxPiece of an image: more makes no transfer faster.
	maxPiece = 256 << 10
	// headRoom is what the headers of a piece may take of the server's limit.
	headRoom = 1 << 10
	// cardTime bounds the search for the card.
	cardTime     = 10 * time.Second
	confirmTime  = 10 * time.Second
	confirmRetry = 5 * time.Second
)

func (u *uplink) images() (*update.Store, error) {
	if s := u.board.cfg.System.Images; s != nil {
		return s, nil
	}
	return nil, rocelink.Refuse(rocelink.CodeUnsupported, "update: this board did not boot an image of ours")
}

// sized adds how much the server lets through at a time.
func (u *uplink) sized(r rocelink.UpdateReply, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	r.Piece = maxPiece
	if nc := u.conn(); nc != nil {
		r.Piece = min(r.Piece, int(nc.MaxPayload())-headRoom)
	}
	return r, nil
}

func (u *uplink) updateBegin(r micro.Request) (any, error) {
	s, err := u.images()
	if err != nil {
		return nil, err
	}
	var q rocelink.UpdateRequest
	if err := decode(r.Data(), &q); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), cardTime)
	defer cancel()
	reply, err := s.Begin(ctx, q)
	if err == nil && reply.Offset == 0 {
		u.event(u.own("update-begun", "image %.64s, %d bytes, into slot %s", q.Build, q.Size, reply.Slot))
	}
	return u.sized(reply, err)
}

func (u *uplink) updateWrite(r micro.Request) (any, error) {
	s, err := u.images()
	if err != nil {
		return nil, err
	}
	number, bad := header(r, rocelink.UpdateHeader)
	if bad != nil {
		return nil, bad
	}
	offset, bad := header(r, rocelink.OffsetHeader)
	if bad != nil {
		return nil, bad
	}
	reply, err := s.Write(number, offset, r.Data())
	return u.sized(reply, err)
}

func header(r micro.Request, name string) (rocelink.Count, error) {
	text := r.Headers().Get(name)
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, rocelink.Refuse(rocelink.CodeBadRequest, "update-write: header %s %.40q: want a number", name, text)
	}
	return rocelink.Count(n), nil
}

func (u *uplink) updateFinish(r micro.Request) (any, error) {
	s, err := u.images()
	if err != nil {
		return nil, err
	}
	var q rocelink.UpdateStep
	if err := decode(r.Data(), &q); err != nil {
		return nil, err
	}
	reply, err := s.Finish(q.Update)
	if err != nil {
		u.event(u.own("update-failed", "%v", err))
	} else {
		u.event(u.own("update-ready", "the image in slot %s is proven: the next start tries it", reply.Slot))
	}
	return u.sized(reply, err)
}

func (u *uplink) updateAbort(r micro.Request) (any, error) {
	s, err := u.images()
	if err != nil {
		return nil, err
	}
	var q rocelink.UpdateStep
	if err := decode(r.Data(), &q); err != nil {
		return nil, err
	}
	if err := s.Abort(q.Update); err != nil {
		return nil, err
	}
	return rocelink.UpdateReply{Version: rocelink.Version, Update: q.Update}, nil
}

// report notes that a status went to the server.
func (u *uplink) report(nc *nats.Conn) {
	if !nc.IsConnected() {
		return
	}
	select {
	case u.reported <- struct{}{}:
	default:
	}
}

// giveUpUpdate ends a transfer that is under way.
func (b *Board) giveUpUpdate() {
	s := b.cfg.System.Images
	if s == nil {
		return
	}
	if err := s.Stop(); err != nil {
		b.log.Warn("give the update up", "err", err)
	}
}

// keepSystem learns how the image came to run, tells what is wrong with the
// machine, and confirms an image on trial: once the server has taken a status, by
// the answer to a ping sent after it.
func (u *uplink) keepSystem(ctx context.Context, nc *nats.Conn) {
	var i rocelink.Image
	s := u.board.cfg.System.Images
	if s != nil {
		load, cancel := context.WithTimeout(ctx, cardTime)
		err := s.Load(load)
		cancel()
		if err != nil {
			u.log.Warn("boot images", "err", err)
		}
		i = s.Image()
		u.board.refresh.Store(true)
	}
	select {
	case <-ctx.Done():
		return
	case <-u.reported:
	}
	u.tell(i)
	for i.Trial {
		err := u.confirm(ctx, nc, s)
		if err == nil {
			u.event(u.own("image-confirmed", "the new image in slot %s works: the board starts it from now on", i.Slot))
			u.board.refresh.Store(true)
			return
		}
		if ctx.Err() != nil {
			return
		}
		u.log.Warn("the new image is not confirmed yet", "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(confirmRetry):
		}
	}
}

func (u *uplink) confirm(ctx context.Context, nc *nats.Conn, s *update.Store) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-u.reported:
	}
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	if err := nc.FlushWithContext(ctx); err != nil {
		return err
	}
	if err := s.Confirm(ctx); err != nil {
		return err
	}
	if m := u.board.cfg.System.Machine; m != nil {
		return m.Confirm(ctx)
	}
	return nil
}
