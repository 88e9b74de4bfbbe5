// y = a + b: a single operation, to compare the flow with published tables.
module add_integer #(
    parameter int BITS = 8
) (
    input  logic            clk,
    input  logic [BITS-1:0] a,
    input  logic [BITS-1:0] b,
    output logic [BITS-1:0] y
);
  always_ff @(posedge clk) y <= a + b;
endmodule
