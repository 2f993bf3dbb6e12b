package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/spf13/cobra"

	"rocelink"
	"rocelink/agent/stream"
)

const (
	updateStep = 30 * time.Second // one request, on a slow card
	// updateTries is how often a transfer begins again where its replies are lost
	// or the board restarted.
	updateTries = 5
	updateTell  = time.Second // between two lines of progress
	// updateImage is the largest image that is read.
	updateImage = 512 << 20
)

func updateCommand(access *rocelink.Access) *cobra.Command {
	var signature, build string
	var reboot bool
	c := &cobra.Command{
		Use:   "update BOARD FILE",
		Short: "Send a board a new boot image",
		Long: "update sends a FIT image (rocelink-image build --sign) to the slot that the board does not run. The board checks\n" +
			"length, hash, signature and that the image is for it, and tries it at its next start; an image that does not\n" +
			"report in is given up after three tries. An interrupted transfer goes on where it was.",
		Example: "  rocectl update left build/rfsoc4x2/rfsoc4x2.itb --reboot",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			u, err := readUpdate(args[1], signature, build)
			if err != nil {
				return err
			}
			nc, err := connect(access, "update", false)
			if err != nil {
				return err
			}
			defer nc.Close()
			u.nc, u.board, u.out = nc, args[0], cmd.OutOrStdout()
			ready, err := u.send(cmd.Context())
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(u.out, "%s: slot %s holds the image and is tried at the next start\n", u.board, ready.Slot); err != nil || !reboot {
				return err
			}
			var reply rocelink.PowerReply
			return stream.Request(cmd.Context(), nc, u.board, rocelink.EndpointPower,
				rocelink.PowerRequest{Version: rocelink.Version, Action: rocelink.PowerReboot, Reason: "update to " + u.request.Build}, &reply)
		},
	}
	c.Flags().StringVar(&signature, "signature", "", "`file` of the signature (default: FILE.sig)")
	c.Flags().StringVar(&build, "build", "", "`identifier` of the image, for people (default: from the hash)")
	c.Flags().BoolVar(&reboot, "reboot", false, "restart the board once it has the image")
	return c
}

// update is an image on its way to a board.
type update struct {
	nc      *nats.Conn
	board   string
	out     io.Writer
	request rocelink.UpdateRequest
	image   []byte
	told    time.Time
}

func readUpdate(file, signature, build string) (*update, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	if info.Size() == 0 || info.Size() > updateImage {
		return nil, fmt.Errorf("image %s has %d bytes: want 1 to %d", file, info.Size(), updateImage)
	}
	image, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	if signature == "" {
		signature = file + ".sig"
	}
	sig, err := os.ReadFile(signature)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("signature: %w: build the image with --sign", err)
	}
	if err != nil {
		return nil, fmt.Errorf("signature: %w", err)
	}
	sum := sha256.Sum256(image)
	if build == "" {
		build = fmt.Sprintf("%s %x", filepath.Base(file), sum[:6])
	}
	if err := rocelink.CheckName("build", build); err != nil {
		return nil, err
	}
	return &update{image: image, request: rocelink.UpdateRequest{
		Version: rocelink.Version, Size: rocelink.Count(len(image)), SHA256: sum[:], Signature: sig, Build: build,
	}}, nil
}

// send sends the image and has it checked. Where a reply is lost, or the board
// has forgotten the transfer, it begins again, and goes on from where the board is.
func (u *update) send(ctx context.Context) (rocelink.UpdateReply, error) {
	var err error
	for range updateTries {
		var r rocelink.UpdateReply
		if r, err = u.once(ctx); err == nil {
			return r, nil
		}
		code := rocelink.CodeOf(err)
		if ctx.Err() != nil || code != "" && code != rocelink.CodeState {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(updateTell):
		}
	}
	return rocelink.UpdateReply{}, err
}

func (u *update) once(ctx context.Context) (rocelink.UpdateReply, error) {
	var at rocelink.UpdateReply
	if err := u.step(ctx, rocelink.EndpointUpdateBegin, u.request, &at); err != nil {
		return at, err
	}
	number := at.Update
	for at.Offset < u.request.Size {
		if at.Piece < 1 {
			return at, fmt.Errorf("update: the board takes pieces of %d bytes", at.Piece)
		}
		u.tell(at, false)
		offset := at.Offset
		piece := u.image[offset:min(offset+rocelink.Count(at.Piece), u.request.Size)]
		m := nats.NewMsg(rocelink.RequestSubject(u.board, rocelink.EndpointUpdateWrite))
		m.Data = piece
		m.Header.Set(rocelink.UpdateHeader, strconv.FormatUint(uint64(number), 10))
		m.Header.Set(rocelink.OffsetHeader, strconv.FormatUint(uint64(offset), 10))
		if err := u.exchange(ctx, m, &at); err != nil {
			return at, err
		}
		if at.Offset <= offset || at.Offset > u.request.Size {
			return at, fmt.Errorf("update: the board is at byte %d after bytes from %d", at.Offset, offset)
		}
	}
	u.tell(at, true)
	err := u.step(ctx, rocelink.EndpointUpdateFinish, rocelink.UpdateStep{Version: rocelink.Version, Update: number}, &at)
	if err == nil && !at.Ready {
		err = errors.New("update: the board does not say that the image is ready")
	}
	return at, err
}

// tell shows how far it is.
func (u *update) tell(at rocelink.UpdateReply, last bool) {
	if now := time.Now(); last || now.Sub(u.told) >= updateTell {
		u.told = now
		fmt.Fprintf(u.out, "%s: slot %s, %d of %d bytes, %d %%\n", u.board, at.Slot, at.Offset, u.request.Size, 100*at.Offset/u.request.Size)
	}
}

func (u *update) step(ctx context.Context, endpoint string, request any, reply *rocelink.UpdateReply) error {
	data, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("%s: %w", endpoint, err)
	}
	m := nats.NewMsg(rocelink.RequestSubject(u.board, endpoint))
	m.Data = data
	return u.exchange(ctx, m, reply)
}

func (u *update) exchange(ctx context.Context, m *nats.Msg, reply *rocelink.UpdateReply) error {
	ctx, cancel := context.WithTimeout(ctx, updateStep)
	defer cancel()
	r, err := u.nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		return fmt.Errorf("update of %s: %w", u.board, err)
	}
	if code := r.Header.Get(micro.ErrorCodeHeader); code != "" {
		return &rocelink.Error{Code: rocelink.Code(code), Text: r.Header.Get(micro.ErrorHeader)}
	}
	*reply = rocelink.UpdateReply{}
	if err := rocelink.Decode(r.Data, reply); err != nil {
		return fmt.Errorf("update of %s: %w", u.board, err)
	}
	return nil
}
