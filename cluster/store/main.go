// The program store is a node of the test cluster: unistore, which speaks TiKV's protocol over
// multi-Raft, with corrections of what the clients of TiKV of today rely on. It is no production
// store. README.md in the folder above says what it can show and what it cannot.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ngaut/unistore/config"
	"github.com/ngaut/unistore/server"
	"github.com/pingcap/kvproto/pkg/deadlock"
	"github.com/pingcap/kvproto/pkg/kvrpcpb"
	"github.com/pingcap/kvproto/pkg/tikvpb"
	"github.com/pingcap/log"
	"github.com/pingcap/tidb/store/mockstore/unistore/pd"
	"github.com/pingcap/tidb/store/mockstore/unistore/tikv"
	"github.com/zhangjinpeng1987/raft"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// messageMax is larger than the largest request that a region takes.
const messageMax = 64 << 20

// rowsMax bounds the rows that a request may ask for. TiKV reserves memory for as many rows as a scan names, before it scans, and
// ends if there is not so much. 10,240 is the bound of TiKV's own clients for scans.
const rowsMax = 10240

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "store:", err)
		os.Exit(1)
	}
}

func run() error {
	pdAddresses := flag.String("pd", "127.0.0.1:2379", "addresses of PD, separated by commas")
	address := flag.String("addr", "127.0.0.1:20160", "address to listen on, which the other nodes and the clients use, too")
	statusAddress := flag.String("status-addr", "127.0.0.1:20180", "address of the page /status")
	data := flag.String("data-dir", "", "folder of the data")
	level := flag.String("log-level", "warn", "debug, info, warn or error")
	regionKeys := flag.Int64("region-keys", 300_000, "a region with more keys is split")
	tick := flag.Duration("raft-tick", 500*time.Millisecond, "a leader is missed after 10 ticks")
	poison := flag.String("poison", "", "for tests: the node ends when a key with this text is read")
	flag.Parse()
	if *data == "" {
		return errors.New("--data-dir is missing")
	}

	logger, properties, err := log.InitLogger(&log.Config{Level: *level})
	if err != nil {
		return err
	}
	log.ReplaceGlobals(logger, properties)
	raft.SetLogger(raftLogger{logger.Sugar()})

	conf := config.DefaultConf
	conf.Server.PDAddr = *pdAddresses
	conf.Server.StoreAddr = *address
	conf.Server.StatusAddr = *statusAddress
	conf.Engine.DBPath = *data
	// A store here shares its machine with two others, PD and the servers.
	conf.Engine.MaxMemTableSize = 32 << 20
	conf.Engine.NumCompactors = 1
	conf.Engine.CompactL0WhenClose = false
	conf.Coprocessor.RegionMaxKeys = *regionKeys
	conf.Coprocessor.RegionSplitKeys = *regionKeys * 2 / 3
	conf.RaftStore.RaftBaseTickInterval = tick.String()
	conf.RaftStore.RaftHeartbeatTicks = 2
	conf.RaftStore.RaftElectionTimeoutTicks = 10
	conf.RaftStore.RaftStoreMaxLeaderLease = (9 * *tick).String()
	conf.RaftStore.PdHeartbeatTickInterval = "2s"

	// The folder of snapshots must not exist. What is in it was on its way when the node ended, and is sent again.
	if err := os.MkdirAll(*data, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(*data, "snap")); err != nil {
		return err
	}

	pdClient, err := pd.NewClient(strings.Split(*pdAddresses, ","), "")
	if err != nil {
		return err
	}
	node, err := server.New(&conf, pdClient)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		return err
	}

	rpc := grpc.NewServer(
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.InitialWindowSize(1<<28),
		grpc.InitialConnWindowSize(1<<28),
		grpc.MaxRecvMsgSize(messageMax),
		grpc.MaxSendMsgSize(messageMax),
		grpc.UnaryInterceptor(guarded([]byte(*poison))),
	)
	tikvpb.RegisterTikvServer(rpc, corrected{node})
	deadlock.RegisterDeadlockServer(rpc, node)

	serveStatus(*statusAddress)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-ended
		rpc.Stop()
	}()
	if err := rpc.Serve(listener); err != nil {
		return err
	}
	node.Stop()
	return nil
}

// serveStatus answers on /status, from when the node has joined the cluster.
func serveStatus(address string) {
	pages := http.NewServeMux()
	pages.HandleFunc("/status", func(response http.ResponseWriter, _ *http.Request) {
		response.WriteHeader(http.StatusOK)
	})
	go func() {
		if err := http.ListenAndServe(address, pages); err != nil {
			log.Fatal("no status page", zap.Error(err))
		}
	}()
}

// refusePanics answers a request that unistore does not implement with an error. unistore panics.
func refusePanics(ctx context.Context, request any, call *grpc.UnaryServerInfo, next grpc.UnaryHandler) (answer any, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			log.Error("request failed", zap.String("method", call.FullMethod), zap.Any("panic", fault), zap.Stack("stack"))
			err = status.Errorf(codes.Unimplemented, "%s: %v", call.FullMethod, fault)
		}
	}()
	return next(ctx, request)
}

// guarded checks each request before it is answered.
func guarded(poison []byte) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, call *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if err := refuseUnbounded(request, call.FullMethod); err != nil {
			return nil, err
		}
		endAt(poison, request, call.FullMethod)
		return refusePanics(ctx, request, call, next)
	}
}

// refuseUnbounded refuses a request that names no bound for its rows, or more rows than TiKV should be asked for. TiKV does not refuse
// it: it reserves the memory.
func refuseUnbounded(request any, method string) error {
	rows, bounded := rowsOf(request)
	if !bounded || (rows > 0 && rows <= rowsMax) {
		return nil
	}
	log.Error("request without a bound", zap.String("method", method), zap.Uint64("rows", rows))
	return status.Errorf(codes.InvalidArgument, "%s asks for %d rows: 1 to %d are allowed", method, rows, rowsMax)
}

// rowsOf returns the rows that a request asks for, and whether it is of a kind that asks for rows.
func rowsOf(request any) (uint64, bool) {
	switch request := request.(type) {
	case *kvrpcpb.ScanRequest:
		return uint64(request.Limit), true
	case *kvrpcpb.ScanLockRequest:
		return uint64(request.Limit), true
	case *kvrpcpb.BatchGetRequest:
		return uint64(len(request.Keys)), true
	case *kvrpcpb.PrewriteRequest:
		return uint64(len(request.Mutations)), true
	case *kvrpcpb.CommitRequest:
		return uint64(len(request.Keys)), true
	case *kvrpcpb.RawScanRequest:
		return uint64(request.Limit), true
	case *kvrpcpb.RawBatchGetRequest:
		return uint64(len(request.Keys)), true
	case *kvrpcpb.RawBatchScanRequest:
		return uint64(request.EachLimit) * uint64(len(request.Ranges)), true
	}
	return 0, false
}

// endAt ends the node when a key with some text is read, as a request does that needs more memory than there is.
func endAt(poison []byte, request any, method string) {
	if len(poison) == 0 {
		return
	}
	for _, key := range keysOf(request) {
		if bytes.Contains(key, poison) {
			fmt.Fprintln(os.Stderr, "store: ended by", method)
			os.Exit(86)
		}
	}
}

// keysOf returns the keys that a request reads.
func keysOf(request any) [][]byte {
	switch request := request.(type) {
	case *kvrpcpb.GetRequest:
		return [][]byte{request.Key}
	case *kvrpcpb.BatchGetRequest:
		return request.Keys
	case *kvrpcpb.ScanRequest:
		return [][]byte{request.StartKey}
	}
	return nil
}

// corrected answers as TiKV where unistore answers as an older version of it.
type corrected struct{ *tikv.Server }

// KvGet says that a key does not exist. An empty value alone would mean that it exists.
func (c corrected) KvGet(ctx context.Context, request *kvrpcpb.GetRequest) (*kvrpcpb.GetResponse, error) {
	answer, err := c.Server.KvGet(ctx, request)
	if err == nil && answer.Error == nil && answer.RegionError == nil && len(answer.Value) == 0 {
		answer.NotFound = true
	}
	return answer, err
}

// KvPrewrite drops the list of secondary keys unless the commit is asynchronous. unistore would keep it in each lock.
func (c corrected) KvPrewrite(ctx context.Context, request *kvrpcpb.PrewriteRequest) (*kvrpcpb.PrewriteResponse, error) {
	if !request.UseAsyncCommit {
		request.Secondaries = nil
	}
	return c.Server.KvPrewrite(ctx, request)
}

// raftLogger passes on what Raft logs.
type raftLogger struct{ *zap.SugaredLogger }

func (l raftLogger) Warning(values ...interface{})                 { l.Warn(values...) }
func (l raftLogger) Warningf(format string, values ...interface{}) { l.Warnf(format, values...) }
