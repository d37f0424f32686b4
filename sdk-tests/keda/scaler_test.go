// Holds the scaler azure-cosmosdb of KEDA, as it is released, to leases of our processor and the feed of our server.
//
// Environment: CHANGEFEED_BIN, the command; COSMOS_ENDPOINT, a fresh server of it with two ranges a container, injected
// faults allowed, and the account host below; LEASE_DOCUMENTS, the folder of the documents that the processor writes.
package keda

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kedacore/keda/v2/pkg/scalers"
	"github.com/kedacore/keda/v2/pkg/scalers/scalersconfig"
)

const (
	// The name of the account, which has a dot, as every name of an account of Azure Cosmos DB has.
	accountHost = "changefeed.shop.test"
	// The public key of the emulator, which the server accepts on loopback.
	key = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
	// How long a test waits for something that must happen.
	patience = 60 * time.Second
)

func TestMain(m *testing.M) {
	// The name of the account is in no DNS. KEDA's client takes a proxy from the environment, and a server must accept
	// what is sent to a proxy, too (RFC 9112, 3.2.2): so the server itself is the proxy for its name.
	os.Setenv("HTTP_PROXY", os.Getenv("COSMOS_ENDPOINT"))
	os.Exit(m.Run())
}

// What KEDA learns from the scaler.
type reading struct {
	Lag    int64
	Active bool
}

// A container with its leases, and the scaler of its processor "mailer".
type shop struct {
	*testing.T
	database string
	scaler   scalers.Scaler
}

func newShop(t *testing.T, database string) *shop {
	endpoint, err := url.Parse(os.Getenv("COSMOS_ENDPOINT"))
	if err != nil {
		t.Fatal(err)
	}
	scaler, err := scalers.NewAzureCosmosDBScaler(&scalersconfig.ScalerConfig{
		ScalableObjectName: "mailer",
		TriggerMetadata: map[string]string{
			"connection":       fmt.Sprintf("AccountEndpoint=http://%s:%s/;AccountKey=%s;", accountHost, endpoint.Port(), key),
			"databaseId":       database,
			"containerId":      "orders",
			"leaseDatabaseId":  database,
			"leaseContainerId": "leases",
			"processorName":    "mailer",
			// The scaler reports at most this for each range that is behind.
			"changeFeedLagThreshold": "1000000",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { scaler.Close(context.Background()) })
	return &shop{t, database, scaler}
}

func (s *shop) read() reading {
	s.Helper()
	metrics, active, err := s.scaler.GetMetricsAndActivity(context.Background(), "lag")
	if err != nil {
		s.Fatal(err)
	}
	return reading{metrics[0].Value.Value(), active}
}

func (s *shop) expect(when string, lag int64, active bool) {
	s.Helper()
	if got := s.read(); got != (reading{lag, active}) {
		s.Fatalf("%s: the scaler says %+v, not %+v", when, got, reading{lag, active})
	}
}

// Arguments that name the store and the container.
func (s *shop) container() []string {
	return []string{"--store", os.Getenv("COSMOS_ENDPOINT"), "--container", s.database + "/orders"}
}

// Arguments that name the processor as well.
func (s *shop) processor() []string {
	return append([]string{"mailer", "--leases", s.database + "/leases"}, s.container()...)
}

// Runs a command to its end and returns what it prints.
func (s *shop) run(verb string, arguments ...[]string) []byte {
	s.Helper()
	all := []string{verb}
	for _, more := range arguments {
		all = append(all, more...)
	}
	command := exec.Command(os.Getenv("CHANGEFEED_BIN"), all...)
	var errors bytes.Buffer
	command.Stderr = &errors
	out, err := command.Output()
	if err != nil {
		s.Fatalf("%v: %v\n%s", all, err, errors.String())
	}
	return out
}

func (s *shop) write(count int) {
	s.Helper()
	s.run("load", s.container(), []string{"--count", fmt.Sprint(count), "--ranges", "2"})
}

// A host of the processor that ends when it has caught up.
func (s *shop) catchUp() {
	s.Helper()
	s.run("run", s.processor(), []string{"--from", "beginning", "--exec", "cat >/dev/null", "--once", "--log", "warn"})
}

// How far the processor is behind by our own estimate.
func (s *shop) ownEstimate() int64 {
	s.Helper()
	var lag struct{ Total int64 }
	if err := json.Unmarshal(s.run("lag", s.processor(), []string{"--json"}), &lag); err != nil {
		s.Fatal(err)
	}
	return lag.Total
}

func (s *shop) split(id string) {
	s.Helper()
	s.run("split", s.container(), []string{"--range", id})
}

// The lease documents, by the last part of their ids.
func (s *shop) leases() map[string]map[string]any {
	s.Helper()
	var found struct{ Documents []map[string]any }
	if err := json.Unmarshal(s.request(http.MethodGet, "", nil), &found); err != nil {
		s.Fatal(err)
	}
	leases := map[string]map[string]any{}
	for _, document := range found.Documents {
		if _, token, ok := strings.Cut(document["id"].(string), ".."); ok {
			leases[token] = document
		}
	}
	return leases
}

// A signed request for documents of the lease container; id is the partition key of a document to write.
func (s *shop) request(method, id string, body []byte) []byte {
	s.Helper()
	link := "dbs/" + s.database + "/colls/leases"
	request, err := http.NewRequest(method, os.Getenv("COSMOS_ENDPOINT")+link+"/docs", bytes.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	date := time.Now().UTC().Format(http.TimeFormat)
	secret, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		s.Fatal(err)
	}
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s\ndocs\n%s\n%s\n\n", strings.ToLower(method), link, strings.ToLower(date))
	signature := base64.StdEncoding.EncodeToString(mac.Sum(nil))
	request.Header.Set("Authorization", url.QueryEscape("type=master&ver=1.0&sig="+signature))
	request.Header.Set("x-ms-date", date)
	request.Header.Set("x-ms-version", "2018-12-31")
	if id != "" {
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("x-ms-documentdb-partitionkey", fmt.Sprintf("[%q]", id))
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 300 {
		s.Fatalf("%s %s: %d %v %s", method, link, response.StatusCode, err, answer)
	}
	return answer
}

func TestTheLagIsExactWhenBehindAndZeroWhenCaughtUp(t *testing.T) {
	s := newShop(t, "exact")
	s.write(40)
	s.catchUp()
	s.expect("caught up", 0, false)
	s.write(25)
	s.expect("behind", 25, true)
	if own := s.ownEstimate(); own != 25 {
		t.Fatalf("our own estimate is %d", own)
	}
	s.write(1)
	s.expect("one more", 26, true)
	s.catchUp()
	s.expect("caught up again", 0, false)
}

func TestTheLagIsExactWhileAHostIsHalfWay(t *testing.T) {
	s := newShop(t, "halfway")
	s.write(10)
	s.catchUp()
	s.write(100)
	// The first batch of each lease succeeds; the second fails until the host ends.
	command := fmt.Sprintf("mkdir %s/$CHANGEFEED_LEASE && cat >/dev/null", t.TempDir())
	arguments := append([]string{"run"}, s.processor()...)
	arguments = append(arguments, "--from", "beginning", "--max-items", "7", "--exec", command, "--log", "off")
	host := exec.Command(os.Getenv("CHANGEFEED_BIN"), arguments...)
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- host.Wait() }()
	t.Cleanup(func() { host.Process.Kill() })
	for deadline := time.Now().Add(patience); s.read() != (reading{86, true}); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("two batches of 7 of 100 are done, and the scaler says %+v", s.read())
		}
	}
	host.Process.Signal(syscall.SIGTERM)
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the host does not end")
	}
	s.expect("no host runs", 86, true)
	s.catchUp()
	s.expect("caught up", 0, false)
}

func TestASplitWakesAHostAndItsEndLetsItSleep(t *testing.T) {
	s := newShop(t, "split")
	s.write(30)
	s.catchUp()
	s.split("0")
	// Nothing is behind, but only a host can make leases for the new ranges.
	s.expect("split", 1, true)
	s.catchUp()
	if leases := s.leases(); len(leases) != 3 || leases["0"] != nil {
		t.Fatalf("leases after the split: %v", leases)
	}
	s.expect("leases are split", 0, false)
	s.write(12)
	s.expect("behind", 12, true)
	s.catchUp()
	s.expect("caught up", 0, false)
}

func TestATombstoneKeepsNothingAwake(t *testing.T) {
	s := newShop(t, "tombstone")
	s.write(30)
	s.catchUp()
	parent := s.leases()["0"]["id"].(string)
	s.split("0")
	s.catchUp()
	s.expect("leases are split", 0, false)
	// What a processor without the right to delete leaves there: the document that its own tests hold it to.
	golden, err := os.ReadFile(filepath.Join(os.Getenv("LEASE_DOCUMENTS"), "tombstone.json"))
	if err != nil {
		t.Fatal(err)
	}
	var tombstone map[string]any
	if err := json.Unmarshal(golden, &tombstone); err != nil {
		t.Fatal(err)
	}
	if _, token, _ := strings.Cut(tombstone["id"].(string), ".."); token != "0" {
		t.Fatalf("the tombstone is that of range %s", token)
	}
	tombstone["id"] = parent
	body, err := json.Marshal(tombstone)
	if err != nil {
		t.Fatal(err)
	}
	s.request(http.MethodPost, parent, body)
	if s.leases()["0"] == nil {
		t.Fatal("the tombstone is not there")
	}
	s.expect("with a tombstone", 0, false)
	s.write(9)
	s.expect("behind", 9, true)
}
