// y = a + b in floating point, rounded to the nearest even; the same numbers as multiply_float.
module add_float #(
    parameter int EXPONENT_BITS = 5,
    parameter int FRACTION_BITS = 10
) (
    input  logic                                 clk,
    input  logic [EXPONENT_BITS+FRACTION_BITS:0] a,
    input  logic [EXPONENT_BITS+FRACTION_BITS:0] b,
    output logic [EXPONENT_BITS+FRACTION_BITS:0] y
);
  localparam int E = EXPONENT_BITS, F = FRACTION_BITS, W = F + 4, P = $clog2(F + 5);
  logic [E+F:0] greater, lesser;                          // by magnitude
  logic [E-1:0] apart;
  logic [W-1:0] greater_fraction, lesser_fraction, moved, back;
  logic lost, up;
  logic [W:0] total;
  logic [W-1:0] aligned;                               // below the leading one
  logic [P-1:0] place;
  logic [F:0] rounded;
  logic [E+1:0] exponent;
  assign {greater, lesser} = a[E+F-1:0] < b[E+F-1:0] ? {b, a} : {a, b};
  assign apart = greater[E+F-1:F] - lesser[E+F-1:F];
  assign greater_fraction = {|greater[E+F-1:F], greater[F-1:0], 3'b0};
  assign lesser_fraction = {|lesser[E+F-1:F], lesser[F-1:0], 3'b0};
  // Guard, round and sticky bit: the lowest bit remembers whether ones were shifted out.
  assign moved = lesser_fraction >> apart;
  assign back = moved << apart;
  assign lost = back != lesser_fraction;
  assign total = greater[E+F] ^ lesser[E+F] ? {1'b0, greater_fraction} - {1'b0, moved[W-1:1], moved[0] | lost}
                                         : {1'b0, greater_fraction} + {1'b0, moved[W-1:1], moved[0] | lost};
  always_comb begin
    place = '0;
    for (int i = 0; i <= W; i++) if (total[i]) place = P'(i);
    aligned = W'(total << (P'(W) - place));
  end
  assign up = aligned[3] && (|aligned[2:0] || aligned[4]);
  assign rounded = {1'b0, aligned[W-1:4]} + (F+1)'(up);
  assign exponent = (E+2)'(greater[E+F-1:F]) + (E+2)'(place) - (E+2)'(F + 3) + (E+2)'(rounded[F]);
  always_ff @(posedge clk)
    y <= total == '0 ? '0 : exponent[E+1] || exponent == '0 ? {greater[E+F], (E+F)'(0)}
                                                           : {greater[E+F], exponent[E-1:0], rounded[F-1:0]};
endmodule
