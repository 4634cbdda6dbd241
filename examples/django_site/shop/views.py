"""Take an order, and show one."""
# pyright: basic

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from shop.models import Order
from shop.tasks import send_receipt


@csrf_exempt
@require_POST
def take_order(request: HttpRequest) -> JsonResponse:
    # Both or none: a worker never looks for an order that was rolled back.
    with transaction.atomic():
        order = Order.objects.create(customer=request.POST["customer"])
        order.receipt = send_receipt.enqueue(order.pk).id
        order.save(update_fields=["receipt"])
    return JsonResponse({"id": order.pk}, status=201)


@require_GET
def show_order(_: HttpRequest, order_id: int) -> JsonResponse:
    order = get_object_or_404(Order, pk=order_id)
    receipt = send_receipt.get_result(order.receipt)
    return JsonResponse({"customer": order.customer, "sent": order.sent, "receipt": str(receipt.status)})
