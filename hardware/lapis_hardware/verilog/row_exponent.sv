// k = round(log2 Z), exactly: the place of the highest one, and one more where the number is above sqrt(2) times that.
module row_exponent #(
    parameter int MASS_BITS = 22,
    parameter int SCALE_BITS = 5
) (
    input  logic                  clk,
    input  logic [MASS_BITS-1:0]  mass,
    output logic [SCALE_BITS-1:0] scale
);
  // sqrt(2) 2**63, rounded down; sqrt(2) is irrational, so "above" is exact after any truncation.
  localparam logic [63:0] ROOT = 64'hB504F333F9DE6484;
  logic [SCALE_BITS-1:0] place;
  logic [MASS_BITS-1:0] aligned;
  always_comb begin
    place = '0;
    for (int i = 0; i < MASS_BITS; i++) if (mass[i]) place = SCALE_BITS'(i);
    aligned = mass << (SCALE_BITS'(MASS_BITS - 1) - place);
  end
  always_ff @(posedge clk) scale <= place + SCALE_BITS'(aligned > ROOT[63-:MASS_BITS]);
endmodule
