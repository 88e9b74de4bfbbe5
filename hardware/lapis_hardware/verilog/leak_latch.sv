// A pair's share of the leak: it takes what is left of the membrane when its distance has passed.
module leak_latch #(
    parameter int DISTANCE_BITS = 11,
    parameter int AFFINITY_BITS = 15
) (
    input  logic                     clk,
    input  logic                     run,
    input  logic [DISTANCE_BITS-1:0] elapsed,
    input  logic [DISTANCE_BITS-1:0] distance,
    input  logic [AFFINITY_BITS-1:0] now,
    output logic                     due,
    output logic [AFFINITY_BITS-1:0] affinity
);
  assign due = run && elapsed == distance;
  always_ff @(posedge clk) if (due) affinity <= now;
endmodule
