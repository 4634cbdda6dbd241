"""The pages of the shop."""

from django.urls import path

from shop.views import show_order, take_order

urlpatterns = [path("orders", take_order), path("orders/<int:order_id>", show_order)]
