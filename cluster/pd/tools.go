//go:build tools

// Package pd pins PD, whose server the test cluster runs.
package pd

import _ "github.com/tikv/pd/cmd/pd-server"
