package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"rocelink/images/devicetree"
	"rocelink/images/fit"
)

func checkCommand() *cobra.Command {
	var key, signature string
	cmd := &cobra.Command{
		Use:   "check IMAGE",
		Short: "checks a FIT image: that it is whole, its hashes, its signature",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			m, err := fit.Read(data)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			t, err := devicetree.Parse(m.DeviceTree.Data)
			if err != nil {
				return fmt.Errorf("%s: device tree: %w", args[0], err)
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "%s, %s\n", m.Description, m.Time.Format("2006-01-02 15:04:05 MST"))
			for _, p := range []struct {
				name string
				part fit.Part
			}{{"kernel", m.Kernel}, {"device tree", m.DeviceTree}, {"initramfs", m.Ramdisk}} {
				fmt.Fprintf(out, "%-12s %9d bytes to %#x: %s\n", p.name, len(p.part.Data), p.part.Load, p.part.Description)
			}
			fmt.Fprintf(out, "%-12s %s\n", "arguments", devicetree.Arguments(t))
			if key == "" {
				return nil
			}
			text, err := os.ReadFile(key)
			if err != nil {
				return err
			}
			public, err := fit.ParsePublicKey(text)
			if err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			if signature == "" {
				signature = args[0] + ".sig"
			}
			sig, err := os.ReadFile(signature)
			if err != nil {
				return err
			}
			if err := fit.Verify(public, data, sig); err != nil {
				return fmt.Errorf("%s: %w", signature, err)
			}
			fmt.Fprintf(out, "%-12s right\n", "signature")
			return nil
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "public key, PEM `file`, of the signature")
	cmd.Flags().StringVar(&signature, "signature", "", "`file` of the signature (default: the image's name and .sig)")
	return cmd
}
