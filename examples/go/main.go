// A Go program that uses Drayage over gRPC: it lists a directory of a sandbox, resolves the file references of a tool
// call, and submits one as work that survives a restart of every service.
//
//	drayage-example -target files.example.org:50051 -ca ca.crt -sandbox local:/tmp/drayage-box
//
// The token comes from the variable DRAYAGE_TOKEN, so that it is not in the list of processes.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "drayage.example/dray/v1"
)

func main() {
	target := flag.String("target", "127.0.0.1:50051", "`address` of the gRPC endpoint")
	ca := flag.String("ca", "", "`file` with the certificate authority of the endpoint; without it there is no TLS")
	tenant := flag.String("tenant", "", "tenant of the calls; leave it out where a token names the caller")
	sandbox := flag.String("sandbox", "local:/tmp/drayage-box", "sandbox to list, `BACKEND:NAME`")
	arguments := flag.String("arguments", `{"text": "plain"}`, "arguments of the tool call, a JSON `object`")
	flag.Parse()

	connection, err := dial(*target, *ca, os.Getenv("DRAYAGE_TOKEN"))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if *tenant != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "dray-tenant", *tenant)
	}
	if err := run(ctx, connection, *sandbox, *arguments); err != nil {
		log.Fatal(explain(err))
	}
}

func run(ctx context.Context, connection *grpc.ClientConn, sandbox, arguments string) error {
	if err := list(ctx, pb.NewSandboxesClient(connection), sandbox); err != nil {
		return err
	}
	if err := resolve(ctx, pb.NewFilesClient(connection), arguments); err != nil {
		return err
	}
	return submit(ctx, pb.NewToolCallsClient(connection), arguments)
}

// list prints the files in the working directory of a sandbox.
func list(ctx context.Context, sandboxes pb.SandboxesClient, sandbox string) error {
	reply, err := sandboxes.List(ctx, &pb.ListSandboxRequest{
		Sandbox: &pb.SandboxRef{Sandbox: &pb.SandboxRef_Address{Address: sandbox}},
		Path:    []byte("."),
	})
	if err != nil {
		return err
	}
	for _, entry := range reply.Entries {
		// Paths are bytes: a file name need not be UTF-8.
		fmt.Printf("%s %d\n", entry.Path, entry.Size)
	}
	return nil
}

// resolve replaces file references in the arguments of a tool call, and waits for the result.
func resolve(ctx context.Context, files pb.FilesClient, arguments string) error {
	reply, err := files.Resolve(ctx, &pb.ResolveRequest{Tool: "summarize", Arguments: inline(arguments)})
	if err != nil {
		return err
	}
	if invalid := reply.GetInvalid(); invalid != nil {
		// The message is for the model, which can correct the argument and call again.
		fmt.Printf("invalid: %s\n", invalid.ToolMessage)
		return nil
	}
	fmt.Printf("resolved: %s\n", reply.GetResolved().Arguments.GetInline())
	return nil
}

// submit publishes a tool call as work and waits for its end. The same operation id is the same work, so a program
// that was restarted meanwhile may submit it again.
func submit(ctx context.Context, calls pb.ToolCallsClient, arguments string) error {
	accepted, err := calls.Submit(ctx, &pb.ToolCallRequested{
		ToolCallId: "call-1", Tool: "summarize", Arguments: inline(arguments),
	})
	if err != nil {
		return err
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		outcome, err := calls.Outcome(ctx, &pb.ToolCallOutcomeRequest{OperationId: accepted.OperationId})
		if err != nil {
			return err
		}
		if outcome.State != pb.TerminalState_TERMINAL_STATE_UNSPECIFIED {
			fmt.Printf("outcome: %s\n", outcome.State)
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

func inline(json string) *pb.Content {
	return &pb.Content{Body: &pb.Content_Inline{Inline: []byte(json)}}
}

// explain returns the reason and the advice of a failure, which the services send as a detail of the status.
func explain(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if fault, ok := detail.(*pb.Fault); ok {
			return fmt.Sprintf("%s: %s %s", fault.Code, fault.Message, fault.Advice)
		}
	}
	return err.Error()
}

func dial(target, ca, token string) (*grpc.ClientConn, error) {
	if ca == "" {
		return grpc.Dial(target, grpc.WithInsecure())
	}
	tls, err := credentials.NewClientTLSFromFile(ca, "")
	if err != nil {
		return nil, err
	}
	return grpc.Dial(target, grpc.WithTransportCredentials(tls), grpc.WithPerRPCCredentials(bearer(token)))
}

// bearer is a token that is sent with every call, but only over TLS.
type bearer string

func (token bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(token)}, nil
}

func (bearer) RequireTransportSecurity() bool { return true }
