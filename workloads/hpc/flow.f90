! What BT, SP and LU have in common: compressible flow without friction in a cube, of density, momentum in three directions and
! energy at n points in each direction, and the change that one explicit step would make.
module flow
  implicit none
  double precision, parameter :: gamma = 1.4d0, step = 2d-3, smoothing = 0.05d0
  integer :: n
  double precision :: h
  double precision, allocatable :: u(:, :, :, :), change(:, :, :, :)

contains

  integer function argument(place, default)
    integer, intent(in) :: place, default
    character(20) :: text
    argument = default
    if (command_argument_count() < place) return
    call get_command_argument(place, text)
    read (text, *) argument
  end function

  ! A dense ball in gas at rest.
  subroutine begin(points)
    integer, intent(in) :: points
    integer :: i, j, k
    double precision :: away
    n = points
    h = 1d0 / (n + 1)
    allocate (u(5, 0:n + 1, 0:n + 1, 0:n + 1), change(5, 0:n + 1, 0:n + 1, 0:n + 1))
    change = 0
    do k = 0, n + 1
      do j = 0, n + 1
        do i = 0, n + 1
          away = (i * h - 0.4d0)**2 + (j * h - 0.5d0)**2 + (k * h - 0.6d0)**2
          u(:, i, j, k) = [1 + exp(-20 * away), 0.1d0, 0.05d0, 0d0, 2.5d0 + exp(-20 * away)]
        end do
      end do
    end do
  end subroutine

  double precision function pressure(at)
    double precision, intent(in) :: at(5)
    pressure = (gamma - 1) * (at(5) - 0.5d0 * (at(2)**2 + at(3)**2 + at(4)**2) / at(1))
  end function

  ! What flows through a unit of area across direction d.
  function flux(at, d)
    double precision, intent(in) :: at(5)
    integer, intent(in) :: d
    double precision :: flux(5), p, speed
    p = pressure(at)
    speed = at(1 + d) / at(1)
    flux = speed * at
    flux(1 + d) = flux(1 + d) + p
    flux(5) = flux(5) + speed * p
  end function

  ! Derivatives of the flux.
  subroutine jacobian(at, d, a)
    double precision, intent(in) :: at(5)
    integer, intent(in) :: d
    double precision, intent(out) :: a(5, 5)
    double precision :: v(3), half_square, speed, enthalpy
    integer :: e
    v = at(2:4) / at(1)
    half_square = 0.5d0 * sum(v**2)
    speed = v(d)
    enthalpy = (at(5) + pressure(at)) / at(1)
    a = 0
    a(1, 1 + d) = 1
    do e = 1, 3
      a(1 + e, 1) = -speed * v(e)
      a(1 + e, 1 + e) = speed
    end do
    a(2:4, 1 + d) = a(2:4, 1 + d) + v
    a(1 + d, 1) = a(1 + d, 1) + (gamma - 1) * half_square
    a(1 + d, 2:4) = a(1 + d, 2:4) - (gamma - 1) * v
    a(1 + d, 5) = gamma - 1
    a(5, 1) = speed * ((gamma - 1) * half_square - enthalpy)
    a(5, 2:4) = -(gamma - 1) * speed * v
    a(5, 1 + d) = a(5, 1 + d) + enthalpy
    a(5, 5) = gamma * speed
  end subroutine

  subroutine find_change
    integer :: i, j, k
    do k = 1, n
      do j = 1, n
        do i = 1, n
          change(:, i, j, k) = step / (2 * h) * (flux(u(:, i - 1, j, k), 1) - flux(u(:, i + 1, j, k), 1) &
            + flux(u(:, i, j - 1, k), 2) - flux(u(:, i, j + 1, k), 2) + flux(u(:, i, j, k - 1), 3) - flux(u(:, i, j, k + 1), 3)) &
            + smoothing * (u(:, i - 1, j, k) + u(:, i + 1, j, k) + u(:, i, j - 1, k) + u(:, i, j + 1, k) + u(:, i, j, k - 1) &
            + u(:, i, j, k + 1) - 6 * u(:, i, j, k))
        end do
      end do
    end do
  end subroutine

  subroutine add_change
    integer :: i, j, k
    do k = 1, n
      do j = 1, n
        do i = 1, n
          u(:, i, j, k) = u(:, i, j, k) + change(:, i, j, k)
        end do
      end do
    end do
    print '(es22.13)', sum(u(:, 1:n, 1:n, 1:n)) / dble(n)**3
  end subroutine

  ! b := a**-1 b and c := a**-1 c, by elimination without pivots, as the diagonal is large; a is lost.
  subroutine eliminate(a, b, c)
    double precision, intent(inout) :: a(5, 5), b(5), c(5, 5)
    integer :: p, row
    double precision :: factor
    do p = 1, 5
      factor = 1 / a(p, p)
      a(p, p + 1:) = a(p, p + 1:) * factor
      c(p, :) = c(p, :) * factor
      b(p) = b(p) * factor
      do row = 1, 5
        if (row == p) cycle
        factor = a(row, p)
        a(row, p + 1:) = a(row, p + 1:) - factor * a(p, p + 1:)
        c(row, :) = c(row, :) - factor * c(p, :)
        b(row) = b(row) - factor * b(p)
      end do
    end do
  end subroutine
end module
