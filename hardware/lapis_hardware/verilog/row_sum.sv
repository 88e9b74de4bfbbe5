// Z = sum_j A_j of one row.
module row_sum #(
    parameter int AFFINITY_BITS = 15,
    parameter int MASS_BITS = 22
) (
    input  logic                     clk,
    input  logic                     start,
    input  logic                     add,
    input  logic [AFFINITY_BITS-1:0] affinity,
    output logic [MASS_BITS-1:0]     mass
);
  always_ff @(posedge clk)
    if (start) mass <= '0;
    else if (add) mass <= mass + MASS_BITS'(affinity);
endmodule
